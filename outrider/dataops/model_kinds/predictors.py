"""Predictors that are plain functions: ``predictor = "model.py:predict"``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.predictor import Predictor
from outrider.user_code import load_callable


def load_predictor_function(reference: str, folder: Path) -> Predictor:
    """Load ``file.py:name``, checked to answer one value per record.

    Raises
    ------
    ConfigError
        If it cannot be loaded.
    """
    function = load_callable(reference, folder)

    def predictor(batch: Batch, /) -> dict[str, NDArray[Any]]:
        answers = function(batch)
        if not isinstance(answers, Mapping):
            raise TypeError(
                f"{reference!r} must return a mapping of output names to arrays, got {answers!r:.80}"
            )
        outputs = {str(name): np.asarray(values) for name, values in answers.items()}
        for name, values in outputs.items():
            if values.shape[:1] != (batch.rows,):
                raise ValueError(f"{reference!r}: {name} needs {batch.rows} values, got shape {values.shape}")
        return outputs

    return predictor
