"""Tables: rules between the columns of one record."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch

from .reading import Floats, arrow, codes, fired, graded, numbers, short


def implies(
    when: str,
    equals: Sequence[Any],
    then: str,
    allowed: Sequence[Any],
    *,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Combination of two columns that a rule excludes.

    If one column has a given value, another must have an allowed value.

    Severity is 1.

    Parameters
    ----------
    when, equals
        The rule applies to records whose ``when`` is one of these values.
    then, allowed
        Allowed values of ``then`` in these records; None in the list allows null.

    Finds
    -----
    Records mixed from two sources, forms with default values, lost joins.

    Cost
    ----
    0.6 µs per record in blocks of 64, 0.12 in blocks of 10,000.

    Measured
    --------
    Faults put into 2 % of real records (adult_census): sex flipped, rule on husbands only: 0.45 (0.38 to
    0.53) of 161 found, 1.00 (0.95 to 1.00) of 73 flags right; 0 (0 to 0.45) flags per 1,000 records as
    they came.

    Examples
    --------
    >>> relation, sex = ["Husband", "Husband", "Wife"], ["Male", "Female", "Female"]
    >>> people = {"inputs.relation": relation, "inputs.sex": sex}
    >>> rule = implies("inputs.relation", ["Husband"], "inputs.sex", ["Male"])
    >>> rule.severities(Batch.from_columns(people, model="m"))
    array([0., 1., 0.])
    """
    cause, effect = tuple(equals), tuple(allowed)

    def judge(batch: Batch) -> Floats:
        holds = codes(arrow(batch, when), cause) >= 0
        follows = codes(arrow(batch, then), effect) >= 0
        return fired(holds & ~follows)

    return assertion(
        name=name or f"{short(when)}_implies_{short(then)}",
        level=level,
        description=f"{when} in {list(cause)!r} but {then} not in {list(effect)!r}.",
    )(judge)


def never_together(
    first: str,
    second: str,
    pairs: Sequence[tuple[Any, Any]],
    *,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Two values in one record that do not go together.

    Severity is 1.

    Parameters
    ----------
    pairs
        Values of ``first`` and ``second`` that exclude each other; None stands for null.

    Finds
    -----
    Impossible combinations that no single column shows; learned from reference data by
    :func:`outrider.assertions.learn`.

    Cost
    ----
    0.63 µs per record in blocks of 64, 0.15 in blocks of 10,000.

    Measured
    --------
    Faults put into 2 % of real records (adult_census): sex flipped, rule on husbands and wives; the one
    flag on records as they came is a real contradiction: 0.48 (0.40 to 0.56) of 161 found, 0.99 (0.93 to
    1.00) of 78 flags right; 0.12 (0.021 to 0.66) flags per 1,000 records as they came.

    Examples
    --------
    >>> people = {"inputs.relation": ["Husband", "Wife", "Wife"], "inputs.sex": ["Male", "Male", "Female"]}
    >>> rule = never_together("inputs.relation", "inputs.sex", [("Husband", "Female"), ("Wife", "Male")])
    >>> rule.severities(Batch.from_columns(people, model="m"))
    array([0., 1., 0.])
    """
    forbidden = tuple((left, right) for left, right in pairs)
    lefts = tuple(dict.fromkeys(left for left, _ in forbidden))
    rights = tuple(dict.fromkeys(right for _, right in forbidden))
    table = np.zeros((len(lefts) + 1, len(rights) + 1), dtype=np.bool_)  # the last of each: any other value
    for left, right in forbidden:
        table[lefts.index(left), rights.index(right)] = True

    def judge(batch: Batch) -> Floats:
        found = table[codes(arrow(batch, first), lefts), codes(arrow(batch, second), rights)]
        return fired(found)

    return assertion(
        name=name or f"{short(first)}_against_{short(second)}",
        level=level,
        description=f"{first} and {second} have values that exclude each other.",
    )(judge)


def determines(
    first: str,
    second: str,
    mapping: Mapping[Any, Any] | Sequence[tuple[Any, Any]],
    *,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Value that contradicts the value determined by another column.

    Severity is 1; values of ``first`` that the mapping lacks do not fire.

    Parameters
    ----------
    mapping
        Required value of ``second`` for each value of ``first``, as a mapping or as pairs.

    Finds
    -----
    Outdated lookups, codes that do not match their names, shifted columns.

    Cost
    ----
    0.41 µs per record in blocks of 64, 0.12 in blocks of 10,000.

    Measured
    --------
    Faults put into 2 % of real records (adult_census): sex flipped, rule on husbands and wives; the one
    flag on records as they came is a real contradiction: 0.48 (0.40 to 0.56) of 161 found, 0.99 (0.93 to
    1.00) of 78 flags right; 0.12 (0.021 to 0.66) flags per 1,000 records as they came.

    Examples
    --------
    >>> orders = {"inputs.country": ["DE", "JP", "DE"], "inputs.currency": ["EUR", "JPY", "USD"]}
    >>> rule = determines("inputs.country", "inputs.currency", {"DE": "EUR", "JP": "JPY"})
    >>> rule.severities(Batch.from_columns(orders, model="m"))
    array([0., 0., 1.])
    """
    wanted_of = dict(mapping)
    keys = tuple(wanted_of)
    results = tuple(dict.fromkeys(wanted_of.values()))
    # One entry more than there are keys: an unknown key reads the last, which no value has.
    wanted = np.array([*(results.index(wanted_of[key]) for key in keys), -2])

    def judge(batch: Batch) -> Floats:
        key = codes(arrow(batch, first), keys)
        value = codes(arrow(batch, second), results)
        return fired((key >= 0) & (wanted[key] != value))

    return assertion(
        name=name or f"{short(first)}_determines_{short(second)}",
        level=level,
        description=f"{second} is not what {first} says it must be.",
    )(judge)


def ordered(
    lower: str,
    upper: str,
    *,
    tolerance: float = 0.0,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Value that exceeds its upper bound from another column.

    Severity is the excess, relative to the larger magnitude of the two (to 1 if that is smaller).

    Finds
    -----
    Swapped fields (start and end, net and gross), clocks of two systems apart, overdrawn limits.

    Cost
    ----
    1 µs per record in blocks of 64, 0.015 in blocks of 10,000.

    Measured
    --------
    Faults put into 2 % of real records (adult_census): years of education and age swapped: 1.00 (0.98 to
    1.00) of 161 found, 1.00 (0.98 to 1.00) of 161 flags right; 0 (0 to 0.45) flags per 1,000 records as
    they came.

    Examples
    --------
    >>> trips = {"inputs.start": [1.0, 5.0], "inputs.end": [2.0, 4.0]}
    >>> ordered("inputs.start", "inputs.end").severities(Batch.from_columns(trips, model="m"))
    array([0. , 0.2])
    """

    def judge(batch: Batch) -> Floats:
        small, large = numbers(batch, lower), numbers(batch, upper)
        with np.errstate(invalid="ignore", over="ignore"):
            excess = small - large
            size = np.maximum(np.maximum(np.abs(small), np.abs(large)), 1.0)
            return graded(excess > tolerance, excess / size)

    return assertion(
        name=name or f"{short(lower)}_above_{short(upper)}",
        level=level,
        description=f"{lower} exceeds {upper}.",
    )(judge)


def swapped(
    first: str,
    second: str,
    *,
    edges: Sequence[float],
    cells: Sequence[tuple[int, int]],
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Two numbers that are likely swapped.

    Severity is 1.

    Parameters
    ----------
    edges
        Borders of the bins of both columns, ascending; bin 0 is below the first border, bin i starts at the
        i-th.
    cells
        Pairs (bin of ``first``, bin of ``second``) that fire.

    Finds
    -----
    Columns swapped by a changed schema or a positional reader, as far as a single record can show it; learned
    by :func:`outrider.assertions.learn`.

    Cost
    ----
    0.26 µs per record in blocks of 64, 0.019 in blocks of 10,000.

    Measured
    --------
    elec2, learned from the 20,000 half-hours before, the prices of both states swapped in 84 of 7,312: 1.00
    (0.96 to 1.00) of 84 found, 0.98 (0.92 to 0.99) of 86 flags right; 0.27 (0.075 to 1) flags per 1,000
    records as they came. On adult_census ages cannot be distinguished from hours a week.

    Examples
    --------
    >>> trips = {"inputs.rooms": [3.0, 80.0, 4.0], "inputs.metres": [70.0, 3.0, 95.0]}
    >>> rule = swapped("inputs.rooms", "inputs.metres", edges=[10.0], cells=[(1, 0)])
    >>> rule.severities(Batch.from_columns(trips, model="m"))
    array([0., 1., 0.])
    """
    borders = np.array(edges, dtype=np.float64)
    if np.isnan(borders).any() or (np.diff(borders) <= 0).any():
        raise ValueError("edges must ascend")
    table = np.zeros((len(borders) + 1, len(borders) + 1), dtype=np.bool_)
    for left, right in cells:
        if not (0 <= left <= len(borders) and 0 <= right <= len(borders)):
            raise ValueError(f"cells must lie in bins 0 to {len(borders)}, got {(left, right)}")
        table[left, right] = True

    def judge(batch: Batch) -> Floats:
        one, other = numbers(batch, first), numbers(batch, second)
        known = ~(np.isnan(one) | np.isnan(other))
        return fired(known & table[borders.searchsorted(one, "right"), borders.searchsorted(other, "right")])

    return assertion(
        name=name or f"{short(first)}_swapped_{short(second)}",
        level=level,
        description=f"{first} and {second} are likelier the other way round.",
    )(judge)
