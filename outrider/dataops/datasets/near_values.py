"""Near-duplicate rows of numbers, found by random projections.

All other inputs are equal, and every number (or tensor, root mean square) differs by at most a share of its
column's spread. Candidates share a cell of a grid (Datar et al., "Locality-Sensitive Hashing Scheme Based on
p-Stable Distributions", SoCG 2004) and are checked exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor, mix, row_hashes

from .neighbours import MatchedRows, Rows, UInts, neighbours

TABLES, PROJECTIONS, WIDTH = 8, 4, 6.0
"""Grids, their dimensions, and cell size in largest distances: 998 of 1,000 such pairs share a cell."""
SAMPLE_ROWS = 10_000
"""Rows of each side from which spreads are measured."""
LARGEST = 1e100
"""Numbers are clipped to it, so that squares stay finite."""
FARTHEST = 1e12
"""Projections are clipped to it."""
_STEP_ROWS = 8192


@dataclass(frozen=True, slots=True)
class ValueSketch:
    batch: Batch
    numbers: Sequence[str]
    tensors: Sequence[str]
    fixed: UInts
    sample: Batch
    """Rows from which spreads are measured."""
    sample_fixed: UInts
    rows: int


def sketch_values(
    batch: Batch, inputs: Sequence[str], *, sample: Batch | None = None, rows: int | None = None
) -> ValueSketch:
    """``sample`` and ``rows`` describe the whole side if the batch is partial."""
    kinds = {name: batch.arrow(name).type for name in inputs}
    tensors = [name for name, kind in kinds.items() if is_tensor(kind)]
    numbers = [
        name for name, kind in kinds.items() if pa.types.is_floating(kind) or pa.types.is_integer(kind)
    ]

    def fixed(of: Batch) -> UInts:
        found = np.full(of.rows, 1, dtype=np.uint64)
        for name in inputs:
            if name in tensors or name in numbers:
                found += mix(of.is_null(name).astype(np.uint64)) * np.uint64(len(name) * 2 + 1)
            else:
                found += row_hashes(of.arrow(name), name)
        return mix(found)

    some, count = _sample(batch) if sample is None else sample, batch.rows if rows is None else rows
    return ValueSketch(batch, numbers, tensors, fixed(batch), some, fixed(some), count)


def near_values(left: ValueSketch, right: ValueSketch, *, share: float, is_own: bool = False) -> MatchedRows:
    """One near-duplicate on the right for each row that has any."""
    scales = spreads(left, right)
    if not scales or not left.batch.rows or not right.batch.rows:
        return MatchedRows.none()
    cell = WIDTH * share * len(scales) ** 0.5
    places = [projected(side, scales) for side in (left, right)]
    offsets = np.random.default_rng(7).uniform(0, cell, places[0].shape[1])
    best = np.full(left.batch.rows, -1, dtype=np.intp)
    distance = np.full(left.batch.rows, np.inf)
    for table in range(TABLES):
        columns = slice(table * PROJECTIONS, (table + 1) * PROJECTIONS)
        keys = [
            _cell_keys(side.fixed, place[:, columns], offsets[columns], cell)
            for side, place in zip((left, right), places, strict=True)
        ]
        along = (table + 1) * PROJECTIONS % places[0].shape[1]
        order = (places[0][:, along], places[1][:, along])
        for rows, others in neighbours(keys[0], keys[1], order=order, is_own=is_own):
            apart = _distances(left, right, rows, others, scales)
            nearer = (apart <= share) & (apart < distance[rows])
            best[rows[nearer]], distance[rows[nearer]] = others[nearer], apart[nearer]
    found = np.flatnonzero(best >= 0).astype(np.intp)
    return MatchedRows(found, best[found], 1.0 - distance[found])


def chance(left: ValueSketch, right: ValueSketch, *, share: float) -> float:
    """Expected chance near-duplicates of a row, were columns independent; 0 with tensors."""
    scales = spreads(left, right)
    if not scales or left.tensors:
        return 0.0
    ours, theirs = left.sample, right.sample
    _, counts = np.unique(right.sample_fixed, return_counts=True)
    pairs = float((counts * (counts - 1.0)).sum()) / max(theirs.rows * (theirs.rows - 1.0), 1.0)
    expected = 1 + (right.rows - 1) * pairs
    for name, scale in scales.items():
        values, ranked = _numbers(ours, name), np.sort(_numbers(theirs, name))
        near = np.searchsorted(ranked, values + share * scale, "right")
        near -= np.searchsorted(ranked, values - share * scale, "left")
        expected *= float(near.mean()) / len(ranked)
    return expected


def spreads(left: ValueSketch, right: ValueSketch) -> dict[str, float]:
    """Spread of each column over both sides; 1 if constant."""
    found: dict[str, float] = {}
    if set(left.numbers) != set(right.numbers) or _shapes(left) != _shapes(right):
        return found  # rows of other kinds are not near
    samples = [left.sample, right.sample]
    for name in left.numbers:
        values = np.concatenate([_numbers(batch, name) for batch in samples])
        found[name] = _spread(values[np.isfinite(values)])
    for name in left.tensors:
        tensors = np.concatenate([_tensors(batch, name) for batch in samples])
        found[name] = float(np.sqrt(np.mean(tensors.var(axis=0)))) or 1.0
    return found


def _shapes(side: ValueSketch) -> dict[str, tuple[int, ...]]:
    return {name: tuple(side.batch.arrow(name).type.shape) for name in side.tensors}


def _spread(values: NDArray[np.float64]) -> float:
    """Standard deviation of values clipped to the first and last percentile."""
    if not len(values):
        return 1.0
    low, high = np.quantile(values, [0.01, 0.99])
    return float(np.clip(values, low, high).std()) or float(values.std()) or 1.0


def _sample(batch: Batch) -> Batch:
    step = max(1, -(-batch.rows // SAMPLE_ROWS))
    return batch.take(np.arange(0, batch.rows, step))


def _numbers(batch: Batch, name: str, rows: Rows | slice = slice(None)) -> NDArray[np.float64]:
    return np.clip(batch.column(name, null=0.0)[rows].astype(np.float64), -LARGEST, LARGEST)


def _tensors(batch: Batch, name: str) -> NDArray[np.float64]:
    return np.clip(batch.tensor(name, null=0).reshape(batch.rows, -1).astype(np.float64), -LARGEST, LARGEST)


def projected(side: ValueSketch, scales: Mapping[str, float]) -> NDArray[np.float64]:
    """In units of spreads, shape (rows, TABLES * PROJECTIONS)."""
    places = np.zeros((side.batch.rows, TABLES * PROJECTIONS))
    rng = np.random.default_rng(3)
    for name, scale in scales.items():
        if name in side.numbers:
            directions = rng.normal(0, 1, places.shape[1])
            with np.errstate(over="ignore"):
                values = np.clip(np.nan_to_num(_numbers(side.batch, name) / scale), -FARTHEST, FARTHEST)
            places += values[:, None] * directions
            continue
        size = int(np.prod(side.batch.arrow(name).type.shape, dtype=np.int64))
        directions = rng.normal(0, 1, (size, places.shape[1])) / (scale * size**0.5)
        for start in range(0, side.batch.rows, _STEP_ROWS):
            block = _tensors(side.batch.slice(start, min(_STEP_ROWS, side.batch.rows - start)), name)
            places[start : start + len(block)] += (
                np.clip(np.nan_to_num(block), -FARTHEST, FARTHEST) @ directions
            )
    return places


def _cell_keys(fixed: UInts, places: NDArray[np.float64], offsets: NDArray[np.float64], cell: float) -> UInts:
    keys = fixed
    for column in range(places.shape[1]):
        cells = np.floor((places[:, column] + offsets[column]) / cell)
        keys = mix(keys ^ np.clip(cells, -(2.0**62), 2.0**62).astype(np.int64).view(np.uint64))
    return keys


def _distances(
    left: ValueSketch, right: ValueSketch, rows: Rows, others: Rows, scales: dict[str, float]
) -> NDArray[np.float64]:
    """Largest difference of each pair over the columns, in spreads; infinite if the rest differs."""
    found = np.where(left.fixed[rows] == right.fixed[others], 0.0, np.inf)
    for name, scale in scales.items():
        if name in left.numbers:
            ours, theirs = _numbers(left.batch, name, rows), _numbers(right.batch, name, others)
            with np.errstate(over="ignore"):
                apart = np.where(ours == theirs, 0.0, np.abs(ours - theirs) / scale)
            found = np.maximum(found, np.nan_to_num(apart, nan=np.inf))
            continue
        close = np.flatnonzero(np.isfinite(found))
        for start in range(0, len(close), _STEP_ROWS):
            step = close[start : start + _STEP_ROWS]
            ours = _tensors(left.batch.take(rows[step]), name)
            apart = np.sqrt(np.mean((ours - _tensors(right.batch.take(others[step]), name)) ** 2, axis=1))
            found[step] = np.maximum(found[step], np.nan_to_num(apart / scale, nan=np.inf))
    return found
