"""Rules for sender faults: frozen sensors, units, swapped columns."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.library.physics import CONVERSIONS
from outrider.assertions.library.reading import Floats, arrow, before, earlier, numbers

from .rules import NEVER, Grouped, Rule, in_order, is_name, word_of

RARE = 2e-4
"""Share of the records outside the range that a rule about tails considers usual."""
LONGEST_RUN = 50
"""Maximum normal run of equal values, in records; beyond it no rule for stuck values is proposed."""
IDLE_S = 3600.0
WORTH = 0.3
"""Minimum share of simulated faults that a rule must find to be proposed."""
BINS = 24
ATOM = 0.02
"""Minimum share of the values at which a single value gets its own bin."""
LIKELIER = 20.0
"""Minimum likelihood ratio of "swapped" over "as given" for a pair of bins."""
MOST_SWAPS, MOST_COLUMNS, MOST_CELLS = 30, 20, 400
MOST_DISTINCT, MOST_STEPS = 20_000, 1e7


_TEMPERATURE = ("Fahrenheit for Celsius", "Kelvin for Celsius")
_MASS = ("pounds for kilograms", "kilograms for pounds")
_LENGTH = ("inches for centimetres", "centimetres for inches")
_THOUSAND = ("thousandfold", "thousandth")
_HUNDRED = ("hundredfold", "hundredth")
_UNIT_WORDS: Mapping[str, Sequence[str]] = {
    "celsius fahrenheit kelvin temp temperature degc degf": _TEMPERATURE,
    "kg lb lbs kilogram kilograms pound pounds weight mass": (*_MASS, *_THOUSAND),
    "gram grams mg g": _THOUSAND,
    "cm inch inches centimetre centimetres centimeter centimeters height": (*_LENGTH, *_HUNDRED),
    "mm km metre metres meter meters length width depth radius diameter distance m": (*_THOUSAND, *_HUNDRED),
    "ms us ns sec secs second seconds millisecond milliseconds latency duration elapsed s": _THOUSAND,
    "eur usd gbp euro euros dollar dollars cent cents price cost amount fee salary income": _HUNDRED,
    "percent percentage pct": _HUNDRED,
    "watt watts kw mw volt volts mv kv ampere amperes ma hz khz mhz pa kpa hpa bar mbar": _THOUSAND,
    "byte bytes kb mb gb liter liters litre litres ml l": _THOUSAND,
}
"""Possible unit mistakes by word in a column's name; single letters match at the end only."""
_MISTAKES = {word: mistakes for words, mistakes in _UNIT_WORDS.items() for word in words.split()}


def mistakes_of(text: str) -> list[str]:
    """Possible unit mistakes of a column, from its name.

    Examples
    --------
    >>> mistakes_of("inputs.bodyTemperature"), mistakes_of("inputs.age")
    (['Fahrenheit for Celsius', 'Kelvin for Celsius'], [])
    """
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", text.rpartition(".")[2])]
    named = [word for at, word in enumerate(words) if len(word) > 1 or 0 < at == len(words) - 1]
    return list(dict.fromkeys(mistake for word in named for mistake in _MISTAKES.get(word, ())))


def check_units(units: Mapping[str, str], columns: Sequence[str]) -> None:
    """Raise ValueError for units of unknown columns, and unknown units.

    The message names the column and the expected units.
    """
    for column, unit in units.items():
        if column not in columns:
            raise ValueError(f"units: no column {column!r}; there are {', '.join(columns)}")
        if unit.lower() not in _MISTAKES:
            known = "celsius, kg, cm, ms, eur, percent"
            raise ValueError(f"units: {column!r}: a unit such as {known} expected, got {unit!r}")


def faults(
    batch: Batch,
    numeric: list[str],
    grouped: Grouped,
    least: int,
    seed: int,
    units: Mapping[str, str],
) -> Iterator[Rule]:
    """Yield rules against sender faults, from numeric and category columns."""
    values = {column: numbers(batch, column) for column in numeric if not is_name(batch, column)}
    values = {column: value for column, value in values.items() if _is_moderate(value)}
    for column in values:
        known = values[column][np.isfinite(values[column])]
        if len(known) >= least and known.min() < known.max():
            yield from _resolution(column, known)
            mistakes = _MISTAKES[units[column].lower()] if column in units else mistakes_of(column)
            if column.startswith("inputs.") and mistakes:
                yield from _units(column, known, mistakes)
    yield from _series(batch, list(values), least, seed)
    found = [*_exchanged_numbers(values, least), *_exchanged_values(grouped, least)]
    found.sort(key=lambda one: -one[0])
    yield from (rule for _, rule in found[:MOST_SWAPS])


def _is_moderate(value: Floats) -> bool:
    """True if squares and differences of the values fit the range of a double."""
    size = np.abs(value[np.isfinite(value)])
    return not len(size) or 1e-100 < size.max() < 1e100


# ---- units ----------------------------------------------------------------------------------------------


def _resolution(column: str, value: Floats) -> Iterator[Rule]:
    found = resolution(value)
    if found is None:
        return
    step, tolerance = found
    parameters = {"column": column, "step": step, "tolerance": tolerance}
    why = f"{column} comes in multiples of {step:.6g}"
    yield "resolution", f"{word_of(column)}_resolution", "multiple_of", parameters, len(value), why


def resolution(value: Floats) -> tuple[float, float] | None:
    """Step of quantized values and largest deviation from a multiple, or None.

    Steps so small that an arbitrary value would fit with a probability above 0.1 are ignored. Whole numbers
    have a step of 1.

    Examples
    --------
    >>> celsius = np.random.default_rng(0).normal(20, 5, 1000)
    >>> resolution(celsius) is None
    True
    >>> step, tolerance = resolution(np.round(celsius, 1))
    >>> step, round(tolerance, 6)
    (0.1, 7e-06)
    """
    distinct = np.unique(np.abs(value))
    if len(distinct) < 10 or not _is_moderate(distinct):
        return None
    if (distinct == np.round(distinct)).all():
        return 1.0, 0.01
    some = distinct[:: -(-len(distinct) // MOST_DISTINCT)]
    apart = np.diff(distinct[:MOST_DISTINCT])
    slack = 2e-7 * float(distinct[-1])  # what is lost where a sender has four bytes for a number
    tried = {float(np.quantile(apart, share, method="nearest")) for share in (0.0, 0.01, 0.05, 0.25, 0.5)}
    for first in sorted(tried, reverse=True):
        if first <= 20 * slack:
            continue
        step = _refined(some, float(apart[np.abs(apart - first) <= 0.1 * first].mean()))
        off = np.abs(value - np.round(value / step) * step)
        tolerance = max(1.2 * float(np.quantile(off, 1 - NEVER)), slack)
        if 2 * tolerance <= 0.1 * step:
            return _readable(step, float(distinct[-1]), tolerance), tolerance
    return None


def _refined(distinct: Floats, step: float) -> float:
    """Step refined by least squares over ever larger values, so that its error never reaches half a step."""
    reach = 50.0
    while True:
        few = distinct[: max(10, int(np.searchsorted(distinct, reach * step)))]
        count = np.round(few / step)
        total = float(count @ count)
        if total > 0:
            step = float(count @ few) / total
        if len(few) == len(distinct) or reach > MOST_STEPS:
            return step
        reach *= 2


def _readable(step: float, largest: float, tolerance: float) -> float:
    for digits in range(1, 16):
        short = float(f"{step:.{digits}g}")
        if abs(short - step) * largest / step <= tolerance / 10:
            return short
    return step


def _units(column: str, value: Floats, mistakes: Sequence[str]) -> Iterator[Rule]:
    low, high = (float(edge) for edge in np.quantile(value, (RARE / 2, 1 - RARE / 2), method="nearest"))
    shown: dict[str, float] = {}
    for mistake in mistakes:
        factor, offset = CONVERSIONS[mistake]
        came = (value - offset) / factor
        shown[mistake] = float(np.mean((came < low) | (came > high)))
    sure = sorted((name for name, share in shown.items() if share >= WORTH), key=lambda name: -shown[name])
    if not sure or low == high:
        return
    evidence = (
        f"{sure[0]} would show on {shown[sure[0]]:.2f} of the values, {sure[-1]} on {shown[sure[-1]]:.2f}"
    )
    conversions = {mistake: list(CONVERSIONS[mistake]) for mistake in mistakes}
    parameters = {"column": column, "low": low, "high": high, "conversions": conversions}
    why = f"{column} is mostly within {low:.6g} to {high:.6g}: {evidence}"
    yield "units", f"{word_of(column)}_unit", "unit_mixup", parameters, len(value), why


# ---- streams --------------------------------------------------------------------------------------------


def _series(batch: Batch, numeric: list[str], least: int, seed: int) -> Iterator[Rule]:
    """Yield rules within an entity, if entities have enough records."""
    if not numeric or arrow(batch, "entity").null_count == batch.rows:
        return
    view = batch.take(in_order(batch))
    last = earlier(view, "entity", 1)[:, 0]
    follows = last >= 0
    place = _run(follows)
    idle = _idle_s(view, follows)
    rng = np.random.default_rng(seed)
    for column in numeric:
        value = numbers(view, column)
        past = before(value, last[:, None])[:, 0]
        step = np.abs(value - past)
        known = step[np.isfinite(step)]
        if len(known) < least or not known.any():
            continue
        run = _run(follows & (step == 0.0))
        rows = _longest(run)
        if rows is not None and np.mean(place >= rows) >= 0.5:
            parameters: dict[str, Any] = {"column": column, "rows": rows} | idle
            why = f"{column} moves within fewer than {rows} records of an entity"
            yield "stuck", f"{word_of(column)}_stuck", "stuck_value", parameters, len(known), why
        above = float(f"{np.quantile(known, 1 - RARE) * 1.05:.6g}")
        strange = np.abs(value - rng.permutation(value))
        share = float(np.mean(strange > above))
        if above > 0 and share >= WORTH:
            parameters = {"column": column, "above": above} | idle
            why = (
                f"{column} moves by {above:.6g} at most; {share:.2f} of values from elsewhere are further off"
            )
            yield "jumps", f"{word_of(column)}_jump", "value_jump", parameters, len(known), why


def _run(goes_on: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Length of the run up to each record since ``goes_on`` was False, shape (n,)."""
    index = np.arange(len(goes_on))
    start = np.maximum.accumulate(np.where(goes_on, 0, index))
    run: NDArray[np.int64] = index - start + 1
    return run


def _longest(run: NDArray[np.int64]) -> int | None:
    """Longest normal run of equal values, with a margin, in records; None if it is too long for a rule."""
    counts = np.bincount(np.minimum(run, LONGEST_RUN), minlength=LONGEST_RUN + 1)
    reached = counts[::-1].cumsum()[::-1]
    rare = np.flatnonzero(reached <= RARE * len(run))
    return max(4, 2 * int(rare[0])) if len(rare) else None


def _idle_s(view: Batch, follows: NDArray[np.bool_]) -> dict[str, Any]:
    """Parameters for the silence after which an entity restarts, if its records are rare."""
    time = view.column("ts").astype("datetime64[us]").astype(np.int64) / 1e6
    gap = np.diff(time, prepend=time[:1])[follows]
    wanted = 2 * float(np.quantile(gap, 0.999)) if len(gap) else 0.0
    return {"idle_s": float(math.ceil(wanted))} if wanted > IDLE_S else {}


# ---- exchanged columns ----------------------------------------------------------------------------------


def _exchanged_numbers(values: Mapping[str, Floats], least: int) -> Iterator[tuple[float, Rule]]:
    for first, second in combinations(list(values)[:MOST_COLUMNS], 2):
        both = np.isfinite(values[first]) & np.isfinite(values[second])
        left, right = values[first][both], values[second][both]
        if len(left) < least:
            continue
        inside = (right >= left.min()) & (right <= left.max()) & (left >= right.min()) & (left <= right.max())
        if inside.mean() < 1 - 0.9:
            continue  # the two ranges say it already
        edges = _edges(np.r_[left, right])
        size = len(edges) + 1
        table = _counts(edges.searchsorted(left, "right"), edges.searchsorted(right, "right"), size)
        found = _cells(table, float((left != right).sum()))
        if found is None:
            continue
        cells, share = found
        parameters = {
            "first": first,
            "second": second,
            "edges": [float(edge) for edge in edges],
            "cells": [[int(a), int(b)] for a, b in cells],
        }
        yield share, _swap(first, second, "swapped", parameters, len(left), share)


def _exchanged_values(grouped: Grouped, least: int) -> Iterator[tuple[float, Rule]]:
    for first, second in combinations(grouped, 2):
        (left, lefts), (right, rights) = grouped[first], grouped[second]
        known = {(type(value), value) for value in rights}  # True is no 1 here
        common = [value for value in lefts if value is not None and (type(value), value) in known]
        if len(common) < 2 or isinstance(common[0], bool):
            continue
        place = {value: index for index, value in enumerate(common)}
        of_left = np.array([place.get(value, -1) for value in lefts], dtype=np.int64)[left]
        of_right = np.array([place.get(value, -1) for value in rights], dtype=np.int64)[right]
        both = (of_left >= 0) & (of_right >= 0)
        if both.sum() < least:
            continue
        table = _counts(of_left[both], of_right[both], len(common))
        found = _cells(table, float((of_left != of_right)[both].sum()))
        if found is None:
            continue
        cells, share = found
        pairs = [[common[a], common[b]] for a, b in cells]
        parameters = {"first": first, "second": second, "pairs": pairs}
        yield share, _swap(first, second, "never_together", parameters, int(both.sum()), share)


def _swap(
    first: str, second: str, factory: str, parameters: dict[str, Any], support: int, share: float
) -> Rule:
    why = f"{first} and {second}, exchanged, would show on {share:.2f} of the records where they differ"
    return "swaps", f"{word_of(first)}_swapped_{word_of(second)}", factory, parameters, support, why


def _edges(pooled: Floats) -> Floats:
    """Borders of bins with about equal counts; a frequent value has a bin of its own."""
    value, counts = np.unique(pooled, return_counts=True)
    quantiles = np.quantile(pooled, np.linspace(0, 1, BINS + 1)[1:-1], method="nearest")
    frequent = value[counts >= ATOM * len(pooled)]
    at = np.searchsorted(value, frequent)
    following = value[at[at + 1 < len(value)] + 1]
    return np.unique(np.concatenate([quantiles, frequent, following]))


def _counts(left: NDArray[np.int64], right: NDArray[np.int64], size: int) -> Floats:
    counts = np.bincount(left * size + right, minlength=size * size)
    return counts.reshape(size, size).astype(np.float64)


def _cells(table: Floats, differ: float) -> tuple[NDArray[np.int64], float] | None:
    """Bin pairs that are more likely swapped, and the share of swapped records in them.

    The likelihood ratio is the most powerful test of one record (Neyman and Pearson, 1933).
    """
    ratio = (table.T + 0.5) / (table + 0.5)
    left = max(1.0, RARE * table.sum())  # records as they came that may fire
    chosen: list[int] = []
    for cell in np.argsort(-ratio, axis=None, kind="stable")[:MOST_CELLS].tolist():
        if ratio.flat[cell] >= LIKELIER and table.flat[cell] <= left:
            chosen.append(cell)
            left -= table.flat[cell]
    flat = np.array(sorted(chosen), dtype=np.int64)
    share = float(table.T.ravel()[flat].sum()) / max(differ, 1.0)
    if share < WORTH:
        return None
    return np.stack(np.divmod(flat, len(table)), axis=1), share
