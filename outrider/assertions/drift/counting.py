"""Counts of one column in the same cells of both windows.

Also in blocks of the reference.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .grid import CODES, INFINITE, Grid, GridCounts, code_of
from .reading import NotCompared, Values
from .sampling import WindowSample

Floats = NDArray[np.float64]
GROUPS = 16
"""Number of groups of cells in which blocks of the reference are compared."""
MOST_NEW = 1_000
"""Maximum number of new categories with a cell of their own."""
_FOR_MEDIAN = 10_000
"""Number of values from which the centre of the grid is computed."""
_LEAST_EXPECTED = 5.0
"""Minimum effective records per chi-square cell, on both sides."""


@dataclass(frozen=True, slots=True)
class ColumnCounts:
    """Counts of a column in effective records.

    Weights are scaled so that their sum is the effective sample size.

    Attributes
    ----------
    is_ordered
        True if cells are ascending numbers, False for categories.
    reference, current
        Effective records by cell, shape (cells,).
    lower, upper
        Ends of cells of numbers, in the column's unit; empty for categories.
    labels
        Categories; empty for numbers.
    blocks
        Effective records of each reference block by group of cells, shape (blocks, groups).
    missing
        Effective records without a value, of reference and current.
    missing_blocks
        Effective records without a value of each reference block, shape (blocks,).
    rows_blocks
        Effective records of each reference block, shape (blocks,).
    infinite
        Records with an infinite value, of reference and current.
    unseen
        Effective records with a new category, or outside the range of all other numbers: of the reference
        (each block compared with the other blocks, summed), and of current compared with the reference.
    unseen_blocks
        The reference's part of ``unseen`` by block, shape (blocks,).
    new
        New categories, most frequent first, with their effective records; after ``MOST_NEW`` all others
        together.
    new_categories
        Number of new categories.
    """

    is_ordered: bool
    reference: Floats
    current: Floats
    lower: Floats
    upper: Floats
    labels: tuple[str, ...]
    blocks: Floats
    missing: tuple[float, float]
    missing_blocks: Floats
    rows_blocks: Floats
    infinite: tuple[float, float]
    unseen: tuple[float, float]
    unseen_blocks: Floats
    new: tuple[tuple[str, float], ...] = ()
    new_categories: int = 0

    def merged(self) -> tuple[Floats, Floats]:
        """Counts with the rarest categories pooled into one cell.

        Pooled are cells too small for chi-square.
        """
        if self.is_ordered:
            return self.reference, self.current
        n, m = self.reference.sum(), self.current.sum()
        both = (self.reference + self.current) / max(n + m, 1e-300)
        is_rare = both * min(n, m) < _LEAST_EXPECTED
        parts = [np.append(each[~is_rare], each[is_rare].sum()) for each in (self.reference, self.current)]
        return parts[0], parts[1]


def count_column(
    reference: Values, current: Values, of_reference: WindowSample, of_current: WindowSample
) -> ColumnCounts:
    """Counts of a column, in one pass.

    Raises
    ------
    NotCompared
        If the reference has no value.
    """
    if reference.kind == "category":
        return _count_categories(reference, current, of_reference, of_current)
    return _count_numbers(reference.numbers, current.numbers, of_reference, of_current)


def _count_numbers(
    reference: NDArray[Any], current: NDArray[Any], of_reference: WindowSample, of_current: WindowSample
) -> ColumnCounts:
    values, weights = _ordered(reference, of_reference)
    grid = Grid(_median(values))
    codes = grid.codes(values)
    one = GridCounts(_counts(codes, weights, CODES))
    two = grid.counts(current, of_current.weights)
    before, after = one.finite, two.finite
    cells = np.flatnonzero((before != 0) | (after != 0))
    seen = np.flatnonzero(before)
    lower, upper = grid.edges(cells)
    counts = before[cells].astype(np.float64)
    group_of = np.full(CODES, GROUPS + 1, dtype=np.int64)  # missing
    group_of[[INFINITE, INFINITE | 0x8000]] = GROUPS
    group_of[code_of(cells)] = groups_of(counts)
    table = _table(group_of[codes], weights, GROUPS + 2, of_reference)
    held_out = _beyond_other_blocks(codes, weights, before, seen, of_reference)
    beyond = after[: seen[0]].sum() + after[seen[-1] + 1 :].sum()
    infinite = float((~np.isfinite(values)).sum() - np.isnan(values).sum())
    return ColumnCounts(
        is_ordered=True,
        reference=counts,
        current=after[cells].astype(np.float64),
        lower=lower,
        upper=upper,
        labels=(),
        blocks=table[:, :GROUPS],
        missing=(one.missing, two.missing),
        missing_blocks=table[:, GROUPS + 1],
        rows_blocks=table.sum(axis=1),
        infinite=(infinite, two.infinite),
        unseen=(float(held_out.sum()), float(beyond)),
        unseen_blocks=held_out,
    )


def _ordered(values: NDArray[Any], sample: WindowSample) -> tuple[NDArray[Any], Floats | None]:
    """Values and weights, sorted by block."""
    if sample.order is None:
        return values, sample.weights
    return values[sample.order], None if sample.weights is None else sample.weights[sample.order]


def _median(values: NDArray[Any]) -> float:
    """Lower median of values sampled evenly along the column.

    Raises NotCompared if there is no finite value.
    """
    some = values[:: max(1, len(values) // _FOR_MEDIAN)]
    finite = some[np.isfinite(some)]
    if not len(finite):
        finite = values[np.isfinite(values)]
    if not len(finite):
        raise NotCompared("values expected, found null or infinite alone", window="reference")
    middle = (len(finite) - 1) // 2
    return float(np.partition(finite, middle)[middle])


def _counts(codes: NDArray[Any], weights: Floats | None, size: int) -> NDArray[Any]:
    return np.bincount(codes, weights, minlength=size)


def groups_of(counts: Floats) -> NDArray[np.int64]:
    """Group of each ordered cell. Groups have about equal counts."""
    middle = np.cumsum(counts) - counts / 2
    place = (GROUPS * middle / max(counts.sum(), 1e-300)).astype(np.int64)
    found: NDArray[np.int64] = np.minimum(place, GROUPS - 1)
    return found


def _table(groups: NDArray[Any], weights: Floats | None, size: int, sample: WindowSample) -> Floats:
    """Effective records by block and group, shape (blocks, size)."""
    block = np.repeat(np.arange(sample.blocks), np.diff(sample.starts, append=sample.rows))
    flat = np.bincount(block * size + groups, weights, minlength=sample.blocks * size)
    return flat.reshape(sample.blocks, size).astype(np.float64)


def _beyond_other_blocks(
    codes: NDArray[np.uint16],
    weights: Floats | None,
    counts: NDArray[Any],
    seen: NDArray[Any],
    sample: WindowSample,
) -> Floats:
    """Effective records of each block outside the value range of all other blocks, shape (blocks,)."""
    found = np.zeros(sample.blocks)
    ends: tuple[tuple[int, Callable[[NDArray[Any], NDArray[Any]], Any]], ...] = (
        (0, lambda own, rest: own[: rest[0]].sum()),
        (-1, lambda own, rest: own[rest[-1] + 1 :].sum()),
    )
    for end, beyond in ends:
        rows = np.flatnonzero(codes == code_of(seen[[end]])[0])
        block = int(np.searchsorted(sample.starts, rows[0], "right")) - 1
        part = slice(sample.starts[block], [*sample.starts, sample.rows][block + 1])
        if rows[-1] >= part.stop:
            continue  # other blocks have values of this cell, too
        weight = None if weights is None else weights[part]
        own = GridCounts(_counts(codes[part], weight, CODES)).finite
        rest = np.flatnonzero(counts - own > 1e-9)
        if len(rest):
            found[block] += beyond(own, rest)
    return found


def _count_categories(
    reference: Values, current: Values, of_reference: WindowSample, of_current: WindowSample
) -> ColumnCounts:
    known = len(reference.categories)
    codes, weights = _ordered(reference.codes, of_reference)
    table = _table(codes, weights, known + 1, of_reference)
    before = table[:, :known].sum(axis=0)
    if not before.any():
        raise NotCompared("values expected, found null alone", window="reference")
    found = np.bincount(current.codes, of_current.weights, minlength=len(current.categories) + 1)
    place = _places(current.categories, reference.categories)
    is_new = place < 0
    after = np.bincount(place[~is_new], found[:-1][~is_new], minlength=known)
    fresh = np.where(is_new, found[:-1], 0.0)
    unused = np.flatnonzero((before == 0) & (after > 0))
    new = [*_named(current.categories, fresh), *((_text(reference.categories[i]), after[i]) for i in unused)]
    order = np.argsort(-before, kind="stable")[: int((before > 0).sum())]
    labels = [_text(reference.categories[i]) for i in order]
    shown = sorted(new, key=lambda each: -each[1])
    if len(shown) > MOST_NEW:
        rest = sum(count for _, count in shown[MOST_NEW:])
        shown = [*shown[:MOST_NEW], (f"{len(shown) - MOST_NEW:,} others", rest)]
    alone = (table[:, :known] > 0).sum(axis=0) == 1
    held_out = table[:, :known][:, alone].sum(axis=1)
    zeros = np.zeros(len(shown))
    return ColumnCounts(
        is_ordered=False,
        reference=np.concatenate([before[order], zeros]),
        current=np.concatenate([after[order], [float(count) for _, count in shown]]),
        lower=zeros[:0],
        upper=zeros[:0],
        labels=(*labels, *(name for name, _ in shown)),
        blocks=grouped(table[:, order]),
        missing=(float(table[:, known].sum()), float(found[-1])),
        missing_blocks=table[:, known],
        rows_blocks=table.sum(axis=1),
        infinite=(0.0, 0.0),
        unseen=(float(held_out.sum()), float(sum(count for _, count in shown))),
        unseen_blocks=held_out,
        new=tuple((name, float(count)) for name, count in shown),
        new_categories=len(new),
    )


def _places(current: pa.Array, reference: pa.Array) -> NDArray[np.int64]:
    """Index of each current category among those of the reference, -1 for new ones."""
    found = pc.index_in(current.cast(reference.type), value_set=reference)
    places: NDArray[np.int64] = pc.fill_null(found.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return places


def _named(categories: pa.Array, counts: Floats) -> list[tuple[str, float]]:
    """Categories with a nonzero count."""
    there = np.flatnonzero(counts)
    names = categories.take(pa.array(there))
    return [(_text(name), float(count)) for name, count in zip(names, counts[there], strict=True)]


def _text(value: Any) -> str:
    found = value.as_py()
    return f"{found:g}" if isinstance(found, float) else str(found)


def grouped(table: Floats) -> Floats:
    """Table of categories with the rarer ones pooled. Columns must be sorted by frequency."""
    return np.column_stack([table[:, : GROUPS - 1], table[:, GROUPS - 1 :].sum(axis=1)])
