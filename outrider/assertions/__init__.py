"""Judges what was observed: batches, assertions, windows and selection. No I/O, no clock, no network."""

from .batch import Batch
from .predictor import Predictor

__all__ = ["Batch", "Predictor"]
