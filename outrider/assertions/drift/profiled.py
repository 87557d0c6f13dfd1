"""Drift of stored profiles, tested on their counts like drift of records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.profiling import RANKS, ColumnLayout, ColumnSummary, Profile, merged, summaries
from outrider.assertions.profiling.layout import ABSENT, MISTYPED, NULL, OTHER

from .counting import GROUPS, ColumnCounts, grouped, groups_of
from .direction import (
    QUANTILES,
    Quantiles,
    in_order_of_words,
    missing_words,
    percent,
    shape_words,
    unseen_words,
)
from .evidence import ChangeEvidence
from .reading import WORDS, Kind
from .result import DriftReport
from .sampling import FEWEST_BLOCKS, block_starts
from .verdicts import ALPHA, FOUND, LEAST, LEAST_SHARE, ROLES, MeasuredColumn, Say, check_parameters, decide
from .windows import size_problems

Floats = NDArray[np.float64]
OTHERS = "other values"
"""Label of the categories that a profile counts together."""


def profile_drift(
    reference: Sequence[Profile],
    current: Profile,
    *,
    units: Mapping[str, str] | None = None,
    alpha: float = ALPHA,
    least: float = LEAST,
    least_share: float = LEAST_SHARE,
    find: float = FOUND,
    matched: str = "",
) -> DriftReport:
    """Test each column of profiles for drift, like :func:`drift_report` on records.

    Distances are computed on the fixed bins. Quantiles and names of new categories are for sentences only.
    Each record counts, since a profile does not know entities: runs of an entity increase the dispersion of
    the reference's blocks. Categories without a bin count as unseen; only a growing share of them is drift.

    Parameters
    ----------
    reference
        Profiles of windows in order of time; they are pooled into at most 20 blocks.
    current
        Profile to test; its bins are used for the comparison.
    units
        Unit of a column's numbers, for sentences.
    alpha
        Probability of any false alarm in the whole report, in (0, 1).
    least, least_share
        Minimum distance of a distribution, and minimum difference of a share, that count as drift, in [0, 1].
    find
        Distance that should be detected with 80 % power, in (0, 1).
    matched
        Description of the reference's times, for the report; empty for all times.

    Returns
    -------
    DriftReport
        Every column of the profiles, worst first; bad input as sentences, never as drift.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
    >>> from outrider.assertions import Batch
    >>> from outrider.assertions.profiling import ProfileLayout
    >>> ages = np.random.default_rng(0).normal(41, 9, (6, 1000))
    >>> hours = [Batch.from_columns({"inputs.age": each}, model="m") for each in [*ages[:5], ages[5] + 16]]
    >>> layout = ProfileLayout.fit(Batch.concat(hours[:5]))
    >>> found = profile_drift([Profile.of(hour, layout) for hour in hours[:5]], Profile.of(hours[5], layout))
    >>> [each.column for each in found.drifting]
    ['inputs.age']
    """
    check_parameters(alpha=alpha, least=least, least_share=least_share, find=find)
    windows = _ProfiledWindows.of(reference, current)
    columns = [_named(each) for each in windows.current.layout.columns]
    problems = windows.problems()
    if not problems:
        for at, column in enumerate(columns):
            _measure(column, windows, at, least, least_share)
    compared = [each for each in columns if not each.ignored]
    return DriftReport(
        columns=decide(compared, windows.sayer(units or {}), alpha=alpha, find=find),
        problems=tuple(problems),
        ignored={each.name: each.ignored for each in columns if each.ignored},
        reference_rows=windows.reference.rows,
        current_rows=windows.current.rows,
        reference_effective=_effective(windows.reference),
        current_effective=_effective(windows.current),
        alpha=alpha,
        least=least,
        least_share=least_share,
        matched=matched,
    )


@dataclass(frozen=True, slots=True)
class _ProfiledWindows:
    """Profiles of both windows in the same bins.

    Attributes
    ----------
    blocks
        Effective records by bin of each reference block, shape (blocks, bins).
    now
        Effective records by bin of the current window, shape (bins,).
    shown
        Estimates of both by column, for sentences and charts.
    """

    reference: Profile
    current: Profile
    blocks: Floats
    now: Floats
    shown: Mapping[str, tuple[ColumnSummary, ColumnSummary]]

    @classmethod
    def of(cls, reference: Sequence[Profile], current: Profile) -> "_ProfiledWindows":
        known = {each.layout.digest: each.layout for each in (*reference, current)}
        layout = merged([Profile.empty(each) for each in known.values()]).layout
        parts = [each.under(layout) for each in reference if each.rows]
        one = merged(parts) if parts else Profile.empty(layout)
        two = current.under(layout)
        records = _effective(one)
        blocks = np.zeros((0, len(one.weights)))
        if parts:
            starts = block_starts(len(parts), records)
            blocks = np.add.reduceat([each.weights for each in parts], starts) * _scale(one)
        shown = {a.name: (a, b) for a, b in zip(summaries(one), summaries(two), strict=True)}
        return cls(one, two, blocks, two.weights * _scale(two), shown)

    def problems(self) -> list[str]:
        """Messages about windows that are too small for any verdict."""
        found = size_problems((_effective(self.reference), _effective(self.current)))
        if not found and len(self.blocks) < FEWEST_BLOCKS:
            found = [
                f"reference: records in {FEWEST_BLOCKS} windows or more expected, found {len(self.blocks)}: "
                "how much they differ among themselves decides what is drift"
            ]
        return found

    def sayer(self, units: Mapping[str, str]) -> Say:
        """Function that makes the sentence about a column."""

        def say(column: MeasuredColumn, drifting: Sequence[ChangeEvidence]) -> str:
            unit = "letters" if column.name.endswith("#length") else units.get(column.name, "")
            return _words(column, drifting, self.shown[column.name], unit)

        return say


def _effective(profile: Profile) -> float:
    """Effective sample size (Kish): the smallest over columns, as bins have uneven weights."""
    if not profile.rows:
        return 0.0
    squares = profile.weights**2 / np.maximum(profile.counts, 1)
    ends = profile.layout.offsets.tolist()
    most = max((float(squares[a:b].sum()) for a, b in pairwise(ends)), default=0.0)
    return profile.weight**2 / most if most else float(profile.rows)


def _scale(profile: Profile) -> float:
    return _effective(profile) / profile.weight if profile.weight else 0.0


def _named(layout: ColumnLayout) -> MeasuredColumn:
    kind: Kind = "category" if layout.kind == "category" else "number"
    role = ROLES.get(layout.name.partition(".")[0], "input")
    return MeasuredColumn(layout.name, role, "text" if layout.name.endswith("#length") else kind)


def _measure(
    column: MeasuredColumn, windows: _ProfiledWindows, at: int, least: float, least_share: float
) -> None:
    layout, own = windows.current.layout.columns[at], slice(*windows.current.layout.offsets[at : at + 2])
    table, now = windows.blocks[:, own], windows.now[own]
    before = table.sum(axis=0)
    if not _has_column(before):
        column.ignored = "reference: records with the column expected, found none of its type"
        return
    if not _has_column(now):
        is_gone = now[ABSENT - 4] >= now[MISTYPED - 4]
        found = "the column is gone" if is_gone else "found values of another type"
        expected = WORDS[column.kind or "number"]
        column.problems.append(f"current: {expected} expected as in the reference, {found}")
        return
    column.problems += _partly(before, now, least_share)
    if layout.kind == "category":
        new = windows.current.estimates[at].new
        known = windows.reference.estimates[at].new
        fresh = {name: weight * _scale(windows.current) for name, weight in new.items() if name not in known}
        counts = _count_categories(layout, table, now, fresh)
    elif not before[: layout.bins].any():
        column.problems.append("reference: values expected, found null or infinite alone")
        return
    else:
        lows, highs = zip(*map(_ends, windows.shown[column.name]), strict=True)
        counts = _count_numbers(layout, table, now, (min(lows), max(highs)))
    column.weigh(counts, least, least_share)


def _has_column(counts: Floats) -> bool:
    return bool(counts.sum() - counts[MISTYPED - 4] - counts[ABSENT - 4])


def _partly(before: Floats, now: Floats, least_share: float) -> list[str]:
    """Messages about columns that records lack, or have with another type, more often than before."""
    found = []
    for which, words in ((ABSENT, "without it"), (MISTYPED, "with another type")):
        one, two = (each[which - 4] / each.sum() for each in (before, now))
        if two - one >= least_share:
            some = f"{percent(two)} of records {words}"
            found.append(f"current: the column in every record expected, found {some}, left out")
    return found


def _count_numbers(
    layout: ColumnLayout, table: Floats, now: Floats, ends: tuple[float, float]
) -> ColumnCounts:
    """Counts of bins. ``ends`` are the outermost values, for charts and the Wasserstein distance."""
    bins = table[:, : layout.bins]
    before, after = bins.sum(axis=0), now[: layout.bins]
    cells = np.flatnonzero((before != 0) | (after != 0))
    seen = np.flatnonzero(before)
    edges = layout.edge_values()
    lower, upper = (np.clip(each, *ends) for each in (np.append(ends[0], edges), np.append(edges, ends[1])))
    groups = groups_of(before[cells])
    blocks = np.array([np.bincount(groups, each, GROUPS) for each in bins[:, cells]], dtype=np.float64)
    held_out = _beyond_other_blocks(bins, before, seen)
    beyond = after[: seen[0]].sum() + after[seen[-1] + 1 :].sum()
    return ColumnCounts(
        is_ordered=True,
        reference=before[cells],
        current=after[cells],
        lower=lower[cells],
        upper=upper[cells],
        labels=(),
        blocks=blocks,
        missing=_missing(table, now),
        missing_blocks=table[:, NULL - 4],
        rows_blocks=table[:, : layout.bins + NULL + 1].sum(axis=1),
        infinite=(float(table[:, OTHER - 4].sum()), float(now[OTHER - 4])),
        unseen=(float(held_out.sum()), float(beyond)),
        unseen_blocks=held_out,
    )


def _missing(table: Floats, now: Floats) -> tuple[float, float]:
    return float(table[:, NULL - 4].sum()), float(now[NULL - 4])


def _beyond_other_blocks(table: Floats, before: Floats, seen: NDArray[np.int64]) -> Floats:
    """Effective records of each block outside the bins of all other blocks, shape (blocks,)."""
    found = np.zeros(len(table))
    for end in (0, -1):
        there = np.flatnonzero(table[:, seen[end]])
        rest = np.flatnonzero(before - table[there[0]] > 1e-9)
        if len(there) == 1 and len(rest):
            own = table[there[0]]
            found[there[0]] += own[: rest[0]].sum() if end == 0 else own[rest[-1] + 1 :].sum()
    return found


def _count_categories(
    layout: ColumnLayout, table: Floats, now: Floats, fresh: Mapping[str, float]
) -> ColumnCounts:
    """Counts of categories; those without a bin are pooled and count as unseen."""
    other = layout.bins
    cells, after = table[:, : other + 1], now[: other + 1]
    before = cells.sum(axis=0)
    names = [*layout.categories, OTHERS]
    order = np.argsort(-before, kind="stable")[: int((before > 0).sum())]
    unused = [int(i) for i in np.argsort(-after, kind="stable") if before[i] == 0 and after[i] > 0]
    alone = (cells[:, :other] > 0).sum(axis=0) == 1
    held_out = cells[:, :other][:, alone].sum(axis=1) + cells[:, other]
    new = {names[i]: float(after[i]) for i in unused if i != other} | dict(fresh)
    shown = [*order.tolist(), *unused]
    return ColumnCounts(
        is_ordered=False,
        reference=before[shown],
        current=after[shown],
        lower=np.zeros(0),
        upper=np.zeros(0),
        labels=tuple(names[i] for i in shown),
        blocks=grouped(cells[:, order]),
        missing=_missing(table, now),
        missing_blocks=table[:, NULL - 4],
        rows_blocks=cells.sum(axis=1) + table[:, NULL - 4],
        infinite=(0.0, 0.0),
        unseen=(
            float(held_out.sum()),
            float(after[other] + sum(after[i] for i in unused if i != other)),
        ),
        unseen_blocks=held_out,
        new=tuple(sorted(new.items(), key=lambda each: -each[1])),
        new_categories=len(new),
    )


def _words(
    column: MeasuredColumn,
    drifting: Sequence[ChangeEvidence],
    both: tuple[ColumnSummary, ColumnSummary],
    unit: str,
) -> str:
    """Sentence about the drifting changes of a column."""
    assert column.counts is not None
    clauses = []
    for each in in_order_of_words(drifting, is_number=column.counts.is_ordered):
        if each.change == "missing":
            clauses.append(missing_words(each, ""))
        elif each.change == "shape":
            clauses.append(shape_words(column.counts, _quantiles(column.counts, both), unit))
        elif column.counts.is_ordered or column.counts.new:
            clauses.append(unseen_words(column.counts, each, _ends(both[0]), unit))
        else:
            clauses.append(f"categories that are not known: {percent(each.before)} → {percent(each.after)}")
    return "; ".join(clauses)


def _ends(found: ColumnSummary) -> tuple[float, float]:
    """Approximate smallest and largest number of a window."""
    if found.low is not None and found.high is not None:
        return found.low, found.high
    return (found.edges[0], found.edges[-1]) if found.edges else (0.0, 0.0)


def _quantiles(counts: ColumnCounts, both: tuple[ColumnSummary, ColumnSummary]) -> Quantiles | None:
    """Quantiles for a sentence; from bins if a window has fewer than ten entities."""
    if not counts.is_ordered:
        return None
    found = []
    for summary, each in zip(both, (counts.reference, counts.current), strict=True):
        by_rank = dict(zip(RANKS, summary.quantiles or (), strict=False))
        upto = np.cumsum(each) / each.sum()
        found.append(
            tuple(
                by_rank.get(rank, float(counts.lower[int(np.searchsorted(upto, rank * (1 - 1e-9)))]))
                for rank in QUANTILES
            )
        )
    return Quantiles(found[0], found[1])  # type: ignore[arg-type]  # three quantiles each
