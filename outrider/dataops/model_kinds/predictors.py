"""Predictors that are plain functions: ``predictor = "model.py:predict"``."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.predictor import Predictor
from outrider.errors import ConfigError
from outrider.user_code import load_callable


def load_predictor_function(reference: str, folder: Path, artefacts: Path | None = None) -> Predictor:
    """``artefacts``: folder with which ``name`` is called to return the function."""
    function = load_callable(reference, folder)
    if artefacts is not None:
        function = _made(function, reference, artefacts)

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


def _made(maker: Callable[[Path], Any], reference: str, artefacts: Path) -> Any:
    try:
        function = maker(artefacts)
    except Exception as error:  # of a user's file
        raise ConfigError(
            f"{reference!r} cannot make its function from {artefacts}: {type(error).__name__}: {error}"
        ) from error
    if not callable(function):
        raise ConfigError(
            f"{reference!r}: called with the folder of its artefacts, it must return a function of a batch, "
            f"got {type(function).__name__}"
        )
    return function
