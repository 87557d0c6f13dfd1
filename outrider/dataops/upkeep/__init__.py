"""Upkeep of datasets: small files packed together, and collection of unnamed objects.

May import datasets, models, payloads, state.
"""
