"""Physics and bounds: values that are physically impossible.

These checks do not depend on the model.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.windows.window import Window

from .reading import Floats, before, earlier, graded, numbers, short

CONVERSIONS: Mapping[str, tuple[float, float]] = {
    "thousandfold": (1e-3, 0.0),
    "thousandth": (1e3, 0.0),
    "hundredfold": (1e-2, 0.0),
    "hundredth": (1e2, 0.0),
    "Fahrenheit for Celsius": (5 / 9, -160 / 9),
    "Kelvin for Celsius": (1.0, -273.15),
    "pounds for kilograms": (0.45359237, 0.0),
    "kilograms for pounds": (1 / 0.45359237, 0.0),
    "inches for centimetres": (2.54, 0.0),
    "centimetres for inches": (1 / 2.54, 0.0),
}
"""Unit mistakes by name: (factor, offset) such that value * factor + offset is the intended value."""


def bounds(
    column: str,
    *,
    low: float | None = None,
    high: float | None = None,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Value outside the range that is possible.

    Severity is the distance beyond the limit, divided by the width of the range (by the limit if only one is
    given).

    Parameters
    ----------
    low, high
        Limits, both inclusive; at least one is required.

    Finds
    -----
    Broken sensors, sentinel values such as -999, overflow, and scores that are no probabilities.

    Cost
    ----
    0.43 µs per record in blocks of 64, 0.0095 in blocks of 10,000.

    Measured
    --------
    Faults put into 2 % of real records (adult_census): ages of -1 and 999: 1.00 (0.98 to 1.00) of 161
    found, 1.00 (0.98 to 1.00) of 161 flags right; 0 (0 to 0.45) flags per 1,000 records as they came.

    Examples
    --------
    >>> ages = Batch.from_columns({"inputs.age": [41.0, -1.0, 130.0]}, model="m")
    >>> bounds("inputs.age", low=0, high=120).severities(ages).round(3)
    array([0.   , 0.008, 0.083])
    """
    if low is None and high is None:
        raise ValueError(f"bounds({column!r}) needs low=, high= or both")
    if low is not None and high is not None and low > high:
        raise ValueError(f"low must be <= high, got {low} and {high}")
    least, most = -np.inf if low is None else float(low), np.inf if high is None else float(high)
    width = most - least
    limit = least if high is None else most
    scale = width if np.isfinite(width) and width > 0 else max(abs(limit), 1.0)

    def judge(batch: Batch) -> Floats:
        value = numbers(batch, column)
        with np.errstate(over="ignore"):  # as far out as can be
            beyond = np.maximum(least - value, value - most)
            return graded(beyond > 0, beyond / scale)

    shown = f"[{'-inf' if low is None else low}, {'inf' if high is None else high}]"
    return assertion(
        name=name or f"bounds_{short(column)}", level=level, description=f"{column} outside {shown}."
    )(judge)


def monotone(
    column: str,
    *,
    direction: Literal["up", "down"] = "up",
    rows: int = 2,
    by: str = "entity",
    idle_s: float = 3600.0,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Value that changed in the impossible direction.

    Severity is the step back, relative to the earlier value.

    Parameters
    ----------
    direction
        ``up``: it must not fall; ``down``: it must not rise.
    rows
        Number of records compared, including the judged one; more of them skip nulls in between.

    Finds
    -----
    Reset or swapped meters, odometers and counters, records of two entities mixed up, clocks set back.

    Cost
    ----
    1.6 µs per record in blocks of 64, 0.33 in blocks of 10,000. In addition: the window's state.

    Measured
    --------
    elec2, faults put into 350 of 35,312 half-hours: a counter reset to 0 (two resets in a row count as one):
    0.99 (0.97 to 1.00) of 350 found, 1.00 (0.99 to 1.00) of 346 flags right; 0 (0 to 0.11) flags per 1,000
    records as they came.

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> meter = Batch.from_columns({"entity": ["m1"] * 3, "inputs.kwh": [10.0, 12.0, 3.0]}, model="m")
    >>> Checker([monotone("inputs.kwh")]).check(meter).row
    array([2])
    """
    sign = {"up": 1.0, "down": -1.0}[direction]

    def judge(batch: Batch) -> Floats:
        value = sign * numbers(batch, column)
        past = before(value, earlier(batch, by, rows - 1), -np.inf)
        highest = np.where(np.isnan(past), -np.inf, past).max(axis=1, initial=-np.inf)
        step = highest - value
        with np.errstate(invalid="ignore"):
            return graded(step > 0, step / np.maximum(np.abs(highest), 1.0))

    verb = "fell" if direction == "up" else "rose"
    return assertion(
        name=name or f"monotone_{short(column)}",
        level=level,
        description=f"{column} {verb} although it can only go {direction}.",
        window=Window(by=by, rows=rows, columns=(column,), idle_s=idle_s),
    )(judge)


def unit_mixup(
    column: str,
    *,
    low: float,
    high: float,
    conversions: Mapping[str, tuple[float, float]] = CONVERSIONS,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Value out of range that a change of units would explain.

    Severity is 1.

    Parameters
    ----------
    low, high
        Usual range in the right unit.
    conversions
        Factor and offset that convert the wrong unit to the right one, by name of the mistake.

    Finds
    -----
    Fahrenheit for Celsius, grams for kilograms, cents for euros: a sender that changed its unit.

    Cost
    ----
    0.67 µs per record in blocks of 64, 0.0084 in blocks of 10,000.

    Measured
    --------
    Faults put into 2 % of real records (adult_census): hours a week in minutes: 1.00 (0.98 to 1.00) of
    161 found, 1.00 (0.98 to 1.00) of 161 flags right; 0 (0 to 0.45) flags per 1,000 records as they came.

    Examples
    --------
    >>> rooms = Batch.from_columns({"inputs.celsius": [21.0, 70.0, 5000.0]}, model="m")
    >>> unit_mixup("inputs.celsius", low=15, high=30).severities(rooms)
    array([0., 1., 0.])
    """
    table = {
        str(mistake): (float(factor), float(offset)) for mistake, (factor, offset) in conversions.items()
    }

    def judge(batch: Batch) -> Floats:
        value = numbers(batch, column)
        outside = (value < low) | (value > high)
        explained = np.zeros(batch.rows, dtype=np.bool_)
        for factor, offset in table.values():
            with np.errstate(over="ignore"):
                meant = value * factor + offset
            explained |= (meant >= low) & (meant <= high)
        return graded(outside & explained, np.ones(batch.rows))

    return assertion(
        name=name or f"unit_{short(column)}",
        level=level,
        description=f"{column} outside [{low}, {high}] but inside in another unit.",
    )(judge)


def multiple_of(
    column: str,
    step: float,
    *,
    tolerance: float = 1e-9,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Number that is not a multiple of its column's step.

    Severity is the distance from the nearest multiple, in steps: 0.5 at most.

    Parameters
    ----------
    step
        Resolution of the measurement or count: 1 for whole numbers, 0.01 for cents, > 0.
    tolerance
        Distance attributed to rounding.

    Finds
    -----
    Converted units, averages and interpolations in the place of readings, columns of another resolution
    swapped; none of these once the sender rounds. Learned by :func:`outrider.assertions.learn`.

    Cost
    ----
    1.1 µs per record in blocks of 64, 0.011 in blocks of 10,000.

    Measured
    --------
    Faults put into 2 % of real records (adult_census): ages times 2.54: 0.99 (0.96 to 1.00) of 161 found,
    1.00 (0.98 to 1.00) of 159 flags right; 0 (0 to 0.45) flags per 1,000 records as they came.

    Examples
    --------
    >>> ages = Batch.from_columns({"inputs.age": [41.0, 104.14, None]}, model="m")
    >>> multiple_of("inputs.age", 1).severities(ages).round(2)
    array([0.  , 0.14, 0.  ])
    """
    if not 0 < step < np.inf:
        raise ValueError(f"step must be > 0 and finite, got {step}")

    def judge(batch: Batch) -> Floats:
        value = numbers(batch, column)
        with np.errstate(invalid="ignore", over="ignore"):  # an infinity is what `finite` finds
            off = np.abs(value - np.round(value / step) * step)
            return graded(off > tolerance, off / step)

    return assertion(
        name=name or f"multiple_{short(column)}",
        level=level,
        description=f"{column} is no multiple of {step:g}.",
    )(judge)


def adds_up(
    parts: Sequence[str],
    total: str,
    *,
    tolerance: float = 0.01,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Parts that do not sum to their total.

    Severity is the difference relative to the total (to 1 if the total is smaller).

    Parameters
    ----------
    parts
        Columns to sum; a record with a null in any of them is not judged.
    tolerance
        Allowed difference, relative to the total.

    Finds
    -----
    Lost line items, shares that do not sum to the whole, energy or money from nowhere.

    Cost
    ----
    0.68 µs per record in blocks of 64, 0.015 in blocks of 10,000.

    Measured
    --------
    Faults put into 2 % of real records (adult_census): capital gain less loss off by 100, within 1 % on
    the large sums: 0.95 (0.91 to 0.97) of 161 found, 1.00 (0.98 to 1.00) of 153 flags right; 0 (0 to
    0.45) flags per 1,000 records as they came.

    Examples
    --------
    >>> bill = {"inputs.net": [100.0, 100.0], "inputs.tax": [19.0, 19.0], "inputs.sum": [119.0, 100.0]}
    >>> judge = adds_up(["inputs.net", "inputs.tax"], "inputs.sum")
    >>> judge.severities(Batch.from_columns(bill, model="m")).round(2)
    array([0.  , 0.19])
    """
    columns = tuple(parts)
    if not columns:
        raise ValueError("adds_up needs at least one part")

    def judge(batch: Batch) -> Floats:
        whole = numbers(batch, total)
        summed = sum((numbers(batch, column) for column in columns), np.zeros(batch.rows))
        with np.errstate(invalid="ignore"):
            off = np.abs(summed - whole) / np.maximum(np.abs(whole), 1.0)
        return graded(off > tolerance, off)

    return assertion(
        name=name or f"adds_up_{short(total)}",
        level=level,
        description=f"{' + '.join(columns)} is not {total} within {tolerance:g}.",
    )(judge)
