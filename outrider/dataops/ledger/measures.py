"""Histograms of measures per minute, exact in counts and totals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.dataops.state.rows import Row

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RATIO = 2.0 ** (1 / 8)
"""Between the bounds of a bucket: a quantile is off by less than 9 %, a mean and a count by nothing."""
LEAST = 1e-9
"""Smaller values are zero."""
ONE = 1 + math.floor(8 * math.log2(1 / LEAST))
"""Bucket of 1.0: what holds or does not hold stands here or in bucket 0."""


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """Judged version, slice, minute and weight per record."""

    version: Sequence[str | None]
    slice: Sequence[str | None]
    minute_us: Integers
    weight: Floats


def buckets_of(values: Floats) -> Integers:
    """Bucket of each finite value; negative values have negative ones.

    Examples
    --------
    >>> buckets_of(np.array([0.0, 1.0, -1.0, 1.01])).tolist()
    [0, 240, -240, 240]
    """
    size = np.abs(values)
    known = size >= LEAST
    found = 1 + np.floor(8 * np.log2(np.where(known, size, LEAST) / LEAST))
    return np.where(known, np.copysign(found, values), 0).astype(np.int64)


def measure_rows(model: str, measure: str, values: Floats, keys: RecordKeys) -> list[Row]:
    """Rows of ``measure_count`` for the finite values of records.

    Examples
    --------
    >>> keys = RecordKeys(["1"] * 3, [None] * 3, np.zeros(3, dtype=np.int64), np.ones(3))
    >>> measure_rows("m", "error", np.array([0.0, 1.0, 1.0]), keys)
    [('m', 'error', 0, '1', '', 0, 1, 1.0, 1.0, 0.0), ('m', 'error', 0, '1', '', 240, 2, 2.0, 2.0, 2.0)]
    """
    known = np.isfinite(values)
    if not known.any():
        return []
    names, place = _codes([keys.version, keys.slice], known)
    bucket, minute, weight = buckets_of(values[known]), keys.minute_us[known], keys.weight[known]
    cells, at = np.unique(np.stack([minute, place, bucket], axis=1), axis=0, return_inverse=True)
    at = at.ravel()
    sums = [
        np.bincount(at, weights=one, minlength=len(cells)).tolist()
        for one in (np.ones(len(at)), weight, weight * weight, weight * values[known])
    ]
    return [
        (model, measure, start, *names[code], number, int(records), one, squares, total)
        for (start, code, number), records, one, squares, total in zip(cells.tolist(), *sums, strict=True)
    ]


def _codes(columns: Sequence[Sequence[str | None]], known: NDArray[np.bool_]) -> tuple[list[Row], Integers]:
    """Distinct rows of texts, null as empty, and the number of each row's."""
    rows = [tuple(value or "" for value in row) for row in zip(*columns, strict=True)]
    numbers: dict[Row, int] = {}
    found = np.array([numbers.setdefault(row, len(numbers)) for row in rows], dtype=np.int64)
    return list(numbers), found[known]
