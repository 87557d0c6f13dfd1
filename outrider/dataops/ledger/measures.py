"""Histograms of measures per minute, exact in counts and totals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.dataops.state.rows import Row

from .cube import Floats, Integers, distinct, summed

RATIO = 2.0 ** (1 / 8)
"""Between the bounds of a bucket: a quantile is off by less than 9 %, a mean and a count by nothing."""
LEAST = 1e-9
"""Smaller values are zero."""
MOST = 1e100
"""Larger values count as this: sums stay finite, and what is taken off again leaves no NaN."""
ONE = 1 + math.floor(8 * math.log2(1 / LEAST))
"""Bucket of 1.0: what holds or does not hold stands here or in bucket 0."""


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """Judged version, slice, minute and weight per record."""

    version: Sequence[str | None]
    slice: Sequence[str | None]
    minute_us: Integers
    weight: Floats

    def parts(self) -> tuple[list[tuple[int, str, str]], Integers]:
        """Distinct minutes, versions and slices, and the place of each record."""
        found, place = distinct(zip(self.minute_us.tolist(), self.version, self.slice, strict=True))
        return [(minute, version or "", part or "") for minute, version, part in found], place


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
    parts, place = keys.parts()
    found: list[Row] = []
    for name, values in measures.items():
        known = np.isfinite(values)
        own, weight = np.clip(values[known], -MOST, MOST), keys.weight[known]
        terms = (np.ones(len(own)), weight, weight * weight, weight * own)
        for (at, bucket), (records, *rest) in summed([place[known], buckets_of(own)], terms):
            found.append((model, name, *parts[at], bucket, int(records), *rest))
    return found
