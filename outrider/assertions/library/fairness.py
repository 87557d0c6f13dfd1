"""Fairness: groups that a model selects differently, seen without labels."""

from collections.abc import Sequence

import numpy as np

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.statistics.group_rates import Limits, Sums, differences, shares
from outrider.assertions.windows.window import Window

from .reading import Bools, Floats, Ints, arrow, codes, earlier, graded, numbers, short, valid

_GRAIN = 1024.0
"""Weights are rounded to multiples of 1 / this, so that sums are exact in any order and however batches are
cut."""


def selection_gap(
    column: str,
    groups: Sequence[object],
    *,
    at_most: float = 0.1,
    prediction: str = "outputs.label",
    positive: object = 1,
    rows: int = 1000,
    confidence: float = 0.999,
    by: str = "version",
    idle_s: float = 86_400.0,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Group selected significantly less often than another, over the latest records.

    The assertion fires on records of the less selected group that were not selected. Severity is the distance
    of the lower end of the difference's interval above the limit.

    Parameters
    ----------
    column
        Column with the group of a record, such as ``inputs.sex``.
    groups
        Values of the column that are compared, at least two; other records do not count.
    at_most
        Allowed difference of selection rates, in [0, 1).
    positive
        Value of ``prediction`` that is a selection.
    rows
        Number of latest records, up to the judged one, that the rates are computed from.
    confidence
        Confidence of Newcombe's interval of the difference, divided among the pairs of groups; the assertion
        fires if its lower end is above ``at_most``. Records count by their capture weights.
    by
        Column whose values have separate windows: a new version of the model starts with an empty one.

    Finds
    -----
    A model, a threshold or an upstream rule that starts to treat groups differently. Only labels show if the
    difference is justified: see the group metrics of the behavioral tests.

    Cost
    ----
    26 µs per record in blocks of 64, 2.9 in blocks of 10,000, with two groups. In addition: the window's
    state.

    Measured
    --------
    adult_census, boosting that selects 0.27 of men and 0.08 of women: the first flag after 977 records, then
    while the window's gap is sure, 0.63 (0.61 to 0.65) of 2,594 women not selected; 0 (0 to 0.45) flags per
    1,000 when the sexes are assigned at random. If the true gap is exactly the allowed one, the worst case,
    14 (7 to 29) false episodes per 1,000 of 500 windows.

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> columns = {"version": ["1"] * 200, "inputs.sex": ["m", "f"] * 100, "outputs.label": [1, 0] * 100}
    >>> batch = Batch.from_columns(columns, model="m")
    >>> flags = Checker([selection_gap("inputs.sex", ["f", "m"], at_most=0.5)]).check(batch)
    >>> int(flags.row[0]), set(batch.take(flags.row).column("inputs.sex").tolist())
    (39, {'f'})
    """
    named = list(dict.fromkeys(groups))
    if len(named) < 2:
        raise ValueError(f"groups must name two values of {column} at least, got {list(groups)!r}")
    if not 0.0 <= at_most < 1.0:
        raise ValueError(f"at_most must lie in [0, 1), got {at_most}; it is a difference of two rates")
    pairs = len(named) * (len(named) - 1) // 2
    each = 1.0 - (1.0 - confidence) / pairs

    def judge(batch: Batch) -> Floats:
        severity = np.zeros(batch.rows)
        group = codes(arrow(batch, column), named)
        predicted = arrow(batch, prediction)
        selected = codes(predicted, [positive]) == 0
        group = np.where(valid(predicted), group, -1)
        asked = np.flatnonzero((group >= 0) & ~selected & batch.is_new)
        if not len(asked):
            return severity
        found = shares(
            _window_sums(batch, group, selected, asked, groups=len(named), rows=rows, by=by), confidence=each
        )
        own = group[asked][:, None]
        mine = Limits(*(np.take_along_axis(part, own, axis=1) for part in found))  # (asked, 1)
        low = np.nan_to_num(differences(found, mine).low, nan=-1.0).max(axis=1)
        severity[asked] = graded(low > at_most, low - at_most)
        return severity

    return assertion(
        name=name or f"selection_gap_{short(column)}",
        level=level,
        description=f"Selected surely more than {at_most:g} less often than another {short(column)}.",
        window=Window(by=by, rows=rows, columns=(column, prediction), idle_s=idle_s),
    )(judge)


def _window_sums(
    batch: Batch, group: Ints, selected: Bools, at: Ints, *, groups: int, rows: int, by: str
) -> Sums:
    """Sums by group over the last ``rows`` records up to each of ``at``, shape (at, groups)."""
    weight = np.rint(np.nan_to_num(numbers(batch, "weight"), nan=1.0) * _GRAIN) / _GRAIN
    member = (group[:, None] == np.arange(groups)).astype(np.float64)  # (rows, groups)
    hit = selected.astype(np.float64)
    start = np.maximum(_run_starts(batch, by)[at], at - rows + 1)

    def windowed(term: Floats) -> Floats:
        total = np.concatenate([np.zeros((1, groups)), np.cumsum(member * term[:, None], axis=0)])
        summed: Floats = total[at + 1] - total[start]
        return summed

    terms = (np.ones(len(weight)), weight, weight**2, weight * hit, weight**2 * hit)
    # Largest weight of each window, both ends included; an edge may be after the last row.
    counted = np.append(member.any(axis=1) * weight, 0.0)
    edges = np.stack([start, at + 1], axis=1).ravel()
    heaviest = np.maximum.reduceat(counted, edges)[::2, None]
    count, total, squares, hits, hits2 = (windowed(term) for term in terms)
    return Sums(count, total, squares, hits, hits2, np.broadcast_to(heaviest, count.shape))


def _run_starts(batch: Batch, by: str) -> Ints:
    """First row of each row's entity, shape (rows,); a record without an entity is its own first row."""
    is_first = earlier(batch, by, 1)[:, 0] < 0
    starts: Ints = np.maximum.accumulate(np.where(is_first, np.arange(batch.rows), 0))
    return starts
