"""Perturbations: seeded changes of inputs, for texts, images and tables, and what combines them."""

from . import image, tabular, text
from .perturbation import Perturbation, Perturbed, apply, chain, column, each, one_of, where

__all__ = [
    "Perturbation",
    "Perturbed",
    "apply",
    "chain",
    "column",
    "each",
    "image",
    "one_of",
    "tabular",
    "text",
    "where",
]
