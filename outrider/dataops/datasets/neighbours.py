"""Candidate pairs from equal keys, a bounded number for each row."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UInts = NDArray[np.uint64]
Rows = NDArray[np.intp]

REACH = 4
"""Candidates on each side of a row among those of its key, however many share it."""


class MatchedRows(NamedTuple):
    rows: Rows
    others: Rows
    likeness: NDArray[np.float64]

    @classmethod
    def none(cls) -> "MatchedRows":
        return cls(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0))


def neighbours(
    left: UInts,
    right: UInts,
    *,
    order: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    is_own: bool = False,
    reach: int = REACH,
) -> Iterator[tuple[Rows, Rows]]:
    """At most ``2 * reach`` of ``right`` per row, nearest by ``order``."""
    place = np.zeros(len(left) + len(right)) if order is None else np.concatenate(order)
    keys = np.concatenate([left, right])
    is_right = np.arange(len(keys)) >= len(left)
    ranked = np.lexsort((is_right, place, keys))
    before = np.cumsum(is_right[ranked])  # rows of the right that stand before each
    there = ranked[is_right[ranked]] - len(left)
    asks = ~is_right[ranked]
    rows, at = ranked[asks], before[asks]
    for step in range(-reach, reach + is_own):
        to = at + step
        inside = (to >= 0) & (to < len(there))
        found, others = rows[inside], there[to[inside]]
        same = left[found] == right[others]
        if is_own:
            same &= found != others
        if same.any():
            yield found[same], others[same]


def equal(left: UInts, right: UInts, *, is_own: bool = False) -> MatchedRows:
    """One partner on the right for each row with an equal key. Key 0 matches nothing."""
    rows = np.flatnonzero(left != 0).astype(np.intp)
    best = np.full(len(left), -1, dtype=np.intp)
    for found, others in neighbours(left[rows], right, is_own=False, reach=1 + is_own):
        fresh = best[rows[found]] < 0
        if is_own:
            fresh &= rows[found] != others
        best[rows[found[fresh]]] = others[fresh]
    held = np.flatnonzero(best >= 0)
    return MatchedRows(held, best[held], np.ones(len(held)))
