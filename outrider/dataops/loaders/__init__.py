"""Loaders: memory-mapped rows for pandas, torch and Hugging Face.

May import datasets, models, payloads, state.
"""
