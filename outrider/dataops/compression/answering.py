"""Answers of a model to many records, in sized batches."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import EncodedRows, Runner


def answer(
    runner: Runner, rows: EncodedRows, *, batch_rows: int = 64, by_length: bool = True
) -> dict[str, NDArray[Any]]:
    """Outputs by field in the order of the rows.

    Parameters
    ----------
    by_length
        Whether rows of like length are put together, which saves padding.
    """
    order = np.arange(rows.count)
    if by_length and rows.lengths is not None:
        order = np.argsort(rows.lengths, kind="stable")
    parts: list[Mapping[str, NDArray[Any]]] = []
    with torch.inference_mode():
        for start in range(0, rows.count, batch_rows):
            fed = rows.take(order[start : start + batch_rows]).tensors
            answers = runner.run({name: tensor.to(runner.device) for name, tensor in fed.items()})
            parts.append(runner.decode({name: tensor.cpu() for name, tensor in answers.items()}))
    back = np.empty(len(order), dtype=np.intp)
    back[order] = np.arange(len(order))
    return {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}


class InBatches:
    """Runner as a Predictor in batches of bounded size."""

    def __init__(self, runner: Runner, *, batch_rows: int = 64) -> None:
        self._runner = runner
        self._batch_rows = batch_rows

    def __call__(self, batch: Batch, /) -> Mapping[str, NDArray[Any]]:
        """Answer every record."""
        if not batch.rows:
            return self._runner.decode({})
        return answer(self._runner, self._runner.encode(batch), batch_rows=self._batch_rows)
