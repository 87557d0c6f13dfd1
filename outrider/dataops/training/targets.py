"""Labels as tensors to learn, and the loss of each row."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor
from outrider.assertions.comparison.matching import class_numbers
from outrider.errors import ValidationRefused, nearest

LABEL = "label"
"""Name of the labels among the tensors of a step."""


def targets_of(rows: Batch, target: str, classes: Sequence[int | str] = ()) -> torch.Tensor:
    """Class numbers (int64, shape (rows,)), or values (float32) without classes."""
    name = label_column(rows, target)
    labels = rows.arrow(name)
    if classes:
        numbers = class_numbers(labels, classes)
        _refuse(rows, name, numbers < 0, f"one of the classes {', '.join(map(repr, classes))}")
        return torch.from_numpy(numbers.astype(np.int64))
    if is_tensor(labels.type):
        values = np.array(rows.tensor(name, null=np.nan), dtype=np.float32)
    elif pa.types.is_integer(labels.type) or pa.types.is_floating(labels.type):
        values = np.array(rows.column(name, null=np.nan), dtype=np.float32)
    else:
        values = np.full(rows.rows, np.nan, dtype=np.float32)
    bad = np.asarray(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    _refuse(rows, name, bad, "a finite number")
    return torch.from_numpy(values)


def label_column(rows: Batch, target: str) -> str:
    name = f"label.{target}"
    if not rows.has(name):
        raise ValidationRefused(
            f"the rows have no column {name}{nearest(name, rows.names)}; target names the learned field"
        )
    return name


def row_losses(out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of classes, mean squared error of values. Shape (rows,)."""
    if targets.dtype == torch.int64:
        return torch.nn.functional.cross_entropy(out, targets, reduction="none")
    errors = torch.nn.functional.mse_loss(out.reshape(targets.shape), targets, reduction="none")
    return errors.reshape(len(targets), -1).mean(dim=1)


def _refuse(rows: Batch, name: str, bad: NDArray[np.bool_], expected: str) -> None:
    if not bad.any():
        return
    row = int(bad.argmax())
    got = rows.arrow(name)[row].as_py()
    raise ValidationRefused(
        f"record {rows.keys[row]!r}: {name}: {expected} expected, got {got!r:.80} "
        f"({int(bad.sum())} of {rows.rows} rows so); correct the label, or withdraw it"
    )
