"""Predictions of a model for a batch of cases."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Predictor


def ask(predictor: Predictor, batch: Batch, *, block_rows: int = 4096) -> Batch:
    """Ask the model about a batch; answers become ``outputs.*``.

    Asked in blocks, so that a large suite fits in memory.
    """
    return batch.with_outputs(answers_to(predictor, batch, block_rows=block_rows))


def answers_to(predictor: Predictor, batch: Batch, *, block_rows: int = 4096) -> dict[str, NDArray[Any]]:
    """The model's answers by output field, shape (rows, …); empty without records.

    The model sees inputs, attributes and ids, never the right answers (``label.*``).
    """
    batch = _without_labels(batch)
    starts = range(0, batch.rows, block_rows)
    blocks = [batch.slice(start, min(block_rows, batch.rows - start)) for start in starts]
    answers = [_answer(predictor, block) for block in blocks]
    return joined(answers)


def _without_labels(batch: Batch) -> Batch:
    kept = [name for name in batch.names if not name.startswith("label.")]
    if len(kept) == len(batch.names):
        return batch
    table = batch.to_arrow()
    return Batch.from_columns({name: table.column(name) for name in kept}, model=batch.model, rows=batch.rows)


def joined(answers: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Answers of consecutive blocks, concatenated."""
    if not answers:
        return {}
    first = answers[0]
    for other in answers[1:]:
        if other.keys() != first.keys():
            raise ValueError(
                f"the same outputs for every block expected, got {sorted(first)} and {sorted(other)}"
            )
    return {name: np.concatenate([answer[name] for answer in answers]) for name in first}


def _answer(predictor: Predictor, batch: Batch) -> Mapping[str, NDArray[Any]]:
    outputs = predictor(batch)
    if not isinstance(outputs, Mapping):
        raise TypeError(
            "a predictor returns outputs by field name, for example {'label': array}; "
            f"got {type(outputs).__name__}"
        )
    arrays = {name: np.asarray(values) for name, values in outputs.items()}
    for name, values in arrays.items():
        if values.ndim == 0 or len(values) != batch.rows:
            raise ValueError(
                f"output {name!r}: one value per record expected ({batch.rows}), got shape {values.shape}"
            )
    return arrays
