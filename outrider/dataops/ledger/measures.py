"""Histograms of measures per minute, exact in counts and totals."""

import math
from collections.abc import Iterator, Mapping, Sequence
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
MOST = 1e100
"""Larger values count as this: sums stay finite, and what is taken off again leaves no NaN."""
_WIDTH = 1 << 16
"""More than there are buckets of doubles."""
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
    """Bucket of each value, by its sign; larger ones count as ``MOST``.

    Examples
    --------
    >>> buckets_of(np.array([0.0, 1.0, -1.0, 1.01])).tolist()
    [0, 240, -240, 240]
    >>> buckets_of(np.array([1.7e308, np.inf])).tolist() == buckets_of(np.array([MOST] * 2)).tolist()
    True
    """
    size = np.minimum(np.abs(values), MOST)
    known = size >= LEAST
    found = 1 + np.floor(8 * np.log2(np.where(known, size, LEAST) / LEAST))
    return np.where(known, np.copysign(found, values), 0).astype(np.int64)


def measure_rows(model: str, measures: Mapping[str, Floats], keys: RecordKeys) -> list[Row]:
    """Rows of ``measure_count`` for the finite values of records.

    Parameters
    ----------
    measures
        Values by measure, NaN where a record has none.

    Examples
    --------
    >>> keys = RecordKeys(["1"] * 3, [None] * 3, np.zeros(3, dtype=np.int64), np.ones(3))
    >>> measure_rows("m", {"error": np.array([0.0, 1.0, 1.0])}, keys)
    [('m', 'error', 0, '1', '', 0, 1, 1.0, 1.0, 0.0), ('m', 'error', 0, '1', '', 240, 2, 2.0, 2.0, 2.0)]
    """
    parts: dict[Row, int] = {}
    columns = zip(keys.minute_us.tolist(), keys.version, keys.slice, strict=True)
    place = np.array([parts.setdefault(part, len(parts)) for part in columns], dtype=np.int64)
    names = [(minute, version or "", part or "") for minute, version, part in parts]
    return [
        row for name, values in measures.items() for row in _rows(model, name, values, keys, names, place)
    ]


def _rows(
    model: str, measure: str, values: Floats, keys: RecordKeys, names: Sequence[Row], place: Integers
) -> Iterator[Row]:
    known = np.isfinite(values)
    if not known.any():
        return
    own, weight = np.clip(values[known], -MOST, MOST), keys.weight[known]
    bucket = buckets_of(own)
    cells, at = np.unique(place[known] * _WIDTH + bucket + _WIDTH // 2, return_inverse=True)
    sums = [
        np.bincount(at, weights=one).tolist()
        for one in (np.ones(len(at)), weight, weight * weight, weight * own)
    ]
    for cell, records, *rest in zip(cells.tolist(), *sums, strict=True):
        part, number = divmod(cell, _WIDTH)
        yield (model, measure, *names[part], number - _WIDTH // 2, int(records), *rest)
