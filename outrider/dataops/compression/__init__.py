"""Compressed variants: made, measured and judged beside their model.

May import model_kinds.
"""
