"""Predictor: a map from a Batch of inputs to outputs."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from .batch import Batch


class Predictor(Protocol):
    """Model, as a function from a Batch to outputs.

    Returns outputs by field name (``label``, ``score``, ``margin``, ``probs`` …), each an array whose first
    dimension is ``batch.rows``. A plain function with this signature is a Predictor.
    """

    def __call__(self, batch: Batch, /) -> Mapping[str, NDArray[Any]]:
        """Outputs for each record of ``batch``."""
