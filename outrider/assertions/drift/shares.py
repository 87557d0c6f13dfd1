"""Shares of a profile's columns that are watched for drift."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.profiling import ColumnLayout, ProfileLayout
from outrider.assertions.profiling.layout import ABSENT, MISTYPED, NULL, OTHER

from .direction import percent
from .verdicts import LEAST, LEAST_SHARE

Floats = NDArray[np.float64]
Change: TypeAlias = Literal["above", "category", "others", "unseen", "missing", "gone"]
RANKS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Ranks of the reference at which the values of a column are cut."""
MOST_NAMED = 8
"""Maximum number of categories with a share of their own; the rest shares one."""


@dataclass(frozen=True, slots=True)
class ColumnShare:
    """Watched share of a column's records.

    Attributes
    ----------
    change
        Numerator of the share: values ``above`` a cut, of one ``category``, of ``others`` (rarer known
        categories), ``unseen`` ones, ``missing`` ones (null, or infinite numbers), or records from which the
        column is ``gone`` (absent, or of another type).
    cut
        Smallest value that counts as above, in the column's unit.
    names
        Categories; for ``unseen`` all known ones.
    """

    column: str
    change: Change
    cut: float = 0.0
    names: tuple[str, ...] = ()

    @property
    def least(self) -> float:
        """Minimum difference that counts as drift, as in a drift report."""
        return LEAST_SHARE if self.change in ("unseen", "missing", "gone") else LEAST

    @property
    def is_of_shape(self) -> bool:
        """True for shares of the column's distribution (not missing, unseen or gone)."""
        return self.change in ("above", "category", "others")

    def words(self, before: float, now: float) -> str:
        """Sentence about a change of the share."""
        names = {
            "above": f"{self.cut:.6g} or more", "category": f"`{', '.join(self.names)}`",
            "others": "other known categories", "unseen": "categories never seen before",
            "missing": "missing values", "gone": "records without the column or with another type",
        }  # fmt: skip
        return f"{names[self.change]} {percent(before)} → {percent(now)}"


def column_shares(layout: ProfileLayout, weights: Floats) -> list[ColumnShare]:
    """Shares to watch, for every column that the reference has.

    Parameters
    ----------
    weights
        Weights of the reference by bin, shape (bins,), as in :class:`~outrider.assertions.profiling.Profile`.
    """
    found: list[ColumnShare] = []
    for at, column in enumerate(layout.columns):
        begin, end = layout.offsets[at : at + 2]
        own = weights[begin:end]
        found += _of_column(column, own)
    return found


def _of_column(column: ColumnLayout, own: Floats) -> list[ColumnShare]:
    rows = own.sum()
    there = rows - own[ABSENT - 4] - own[MISTYPED - 4]
    if not there:
        return []
    rest = [ColumnShare(column.name, "missing"), ColumnShare(column.name, "gone")]
    if column.kind == "numeric":
        return [*_cuts(column, own[: column.bins]), *rest]
    known = [
        column.categories[at] for at in np.argsort(-own[: column.bins], kind="stable").tolist() if own[at] > 0
    ]
    if not known:
        return rest
    found = [ColumnShare(column.name, "category", names=(name,)) for name in known[:MOST_NAMED]]
    if len(known) > MOST_NAMED:
        found.append(ColumnShare(column.name, "others", names=tuple(known[MOST_NAMED:])))
    return [*found, ColumnShare(column.name, "unseen", names=tuple(known)), *rest]


def _cuts(column: ColumnLayout, bins: Floats) -> list[ColumnShare]:
    """Cuts nearest to the wanted ranks, with values on both sides."""
    if len(bins) < 2 or not bins.sum():
        return []
    below = np.cumsum(bins)[:-1] / bins.sum()  # (bins - 1,), below each edge
    inside = np.flatnonzero((below > 0) & (below < 1))
    if not len(inside):
        return []
    places = {int(inside[np.abs(below[inside] - rank).argmin()]) for rank in RANKS}
    edges = column.edge_values()
    return [ColumnShare(column.name, "above", cut=float(edges[at])) for at in sorted(places)]


@dataclass(frozen=True, slots=True)
class ShareCounter:
    """Counter of shares in the weights of one layout's profiles.

    Columns whose bins differ from those of the reference are not counted.
    """

    hits: Floats
    """Indicator (0 or 1) of the bins in each share, shape (shares, bins)."""
    seen: Floats

    @classmethod
    def of(cls, shares: Sequence[ColumnShare], layout: ProfileLayout) -> "ShareCounter":
        """Counter of ``shares`` under a layout."""
        hits, seen = np.zeros((2, len(shares), int(layout.offsets[-1])))
        places = {column.name: at for at, column in enumerate(layout.columns)}
        for row, share in enumerate(shares):
            if (at := places.get(share.column)) is None:
                continue
            begin, end = layout.offsets[at : at + 2]
            _mark(share, layout.columns[at], hits[row, begin:end], seen[row, begin:end])
        return cls(hits, seen)

    def count(self, weights: Floats) -> tuple[Floats, Floats]:
        """Weighted hits and observations, each of shape (shares,). ``weights`` has shape (bins,)."""
        return self.hits @ weights, self.seen @ weights


def _mark(share: ColumnShare, column: ColumnLayout, hits: Floats, seen: Floats) -> None:
    """Set the indicators of one share's bins, in place."""
    bins = column.bins
    if share.change == "gone":
        seen[:] = 1.0
        hits[[MISTYPED - 4, ABSENT - 4]] = 1.0
    elif share.change == "missing":
        seen[: bins + NULL + 1] = 1.0
        hits[NULL - 4] = 1.0
        hits[OTHER - 4] = column.kind == "numeric"  # infinite
    elif share.change == "above" and column.kind == "numeric":
        edge = np.flatnonzero(column.edge_values() == share.cut)
        if len(edge):
            seen[:bins] = 1.0
            hits[int(edge[0]) + 1 : bins] = 1.0
    elif share.change != "above" and column.kind == "category":
        seen[: bins + OTHER + 1] = 1.0
        named = np.isin(column.categories, share.names)
        hits[:bins] = ~named if share.change == "unseen" else named
        hits[OTHER - 4] = share.change == "unseen"
