"""Perturbations: seeded changes of inputs, and their combinations.

For texts, chats, images, tables and time series.
"""

from . import chat, image, series, tabular, text
from .perturbation import Perturbation, Perturbed, apply, chain, column, each, one_of, where

__all__ = [
    "Perturbation",
    "Perturbed",
    "apply",
    "chain",
    "chat",
    "column",
    "each",
    "image",
    "one_of",
    "series",
    "tabular",
    "text",
    "where",
]
