"""Columns and samples of reference and current windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch.schema import MARKS, SYSTEM, is_part

from .reading import NotCompared, arrow_of, columns_of
from .sampling import WindowSample, sample_of
from .variation import FEWEST_WINDOWS

FEWEST = 30
"""Minimum effective records of a window for any verdict."""
_PERIODS = ((86_400_000_000, "hours of {} days"), (7 * 86_400_000_000, "days of {} weeks"))
"""Microseconds of a day and of a week, each with its description."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Columns of both windows, and their samples.

    Attributes
    ----------
    samples
        Samples of reference and current.
    entity, weight, ts
        Names of these columns, or None.
    matched
        Times of the reference that are compared; empty for all.
    """

    reference: Mapping[str, Any]
    current: Mapping[str, Any]
    samples: tuple[WindowSample, WindowSample]
    entity: str | None
    weight: str | None
    ts: str | None
    matched: str = ""

    @classmethod
    def of(
        cls, reference: Any, current: Any, entity: str | None, weight: str | None, ts: str | None
    ) -> "Windows":
        """Windows from two data sets.

        A :class:`Batch` has its entity, weight and event times under the default names.

        Raises
        ------
        ValueError
            If a named column is absent, a weight is not above 0, or ``ts`` has values that are not times.
        """
        one, two = columns_of(reference), columns_of(current)
        if any(map(is_part, one)):
            both = one, two
            entity = entity or ("entity" if all(_has_values(each.get("entity")) for each in both) else None)
            weight = weight or ("weight" if any(_is_uneven(each.get("weight")) for each in both) else None)
            ts = ts or ("ts" if all("ts" in each for each in both) else None)
        named = [name for name in (entity, weight, ts) if name is not None]
        samples = []
        for window, columns in (("reference", one), ("current", two)):
            if absent := [name for name in named if name not in columns]:
                raise ValueError(f"{window}: column {absent[0]!r} expected, found {', '.join(columns)}")
        if ts is not None:
            one, two = _in_order("reference", one, ts), _in_order("current", two, ts)
        one, matched = (one, "") if ts is None else _matched(one, two, ts)
        for columns in (one, two):
            by = [None if name is None else columns[name] for name in (weight, entity)]
            samples.append(sample_of(_rows(columns), *by))
        return cls(one, two, (samples[0], samples[1]), entity, weight, ts, matched)

    def chosen(self, columns: Sequence[str] | None) -> list[str]:
        """Columns to compare, in the order of the reference.

        Raises
        ------
        ValueError
            If one is absent from the reference.
        """
        system = {*SYSTEM, *MARKS} if any(map(is_part, self.reference)) else set()
        if columns is None:
            return [
                name for name in self.reference if name not in {*system, self.entity, self.weight, self.ts}
            ]
        if absent := [name for name in columns if name not in self.reference]:
            raise ValueError(f"reference: column {absent[0]!r} expected, found {', '.join(self.reference)}")
        return list(columns)

    def problems(self) -> list[str]:
        """Messages about windows that are too small for any verdict."""
        return size_problems((self.samples[0].effective, self.samples[1].effective))


def size_problems(effective: tuple[float, float]) -> list[str]:
    """Messages about windows that are too small for any verdict."""
    return [
        f"{window}: at least {FEWEST} effective records expected, found {records:,.0f}"
        for window, records in zip(("reference", "current"), effective, strict=True)
        if records < FEWEST
    ]


def _rows(columns: Mapping[str, Any]) -> int:
    return len(next(iter(columns.values()))) if columns else 0


def _has_values(column: Any) -> bool:
    return column is not None and arrow_of(column).null_count < len(column)


def _is_uneven(column: Any) -> bool:
    if column is None or not len(column):
        return False
    values = np.asarray(arrow_of(column).to_numpy(zero_copy_only=False))
    return bool((values != values[0]).any())


def same_times(
    starts: NDArray[np.int64], ends: NDArray[np.int64], since: int, until: int
) -> tuple[NDArray[np.bool_], str] | None:
    """Reference spans at a window's hours of day or days of week.

    Returns their mask and name, such as "the same hours of 7 days". None if the window is longer than half a
    day and half a week, or fewer than three such stretches exist. All times in µs; ``starts`` and ``ends``
    are equal for records.
    """
    for period, name in _PERIODS:
        if 2 * (until - since) > period:
            continue
        kept = (starts - since) % period + (ends - starts) <= until - since
        stretches = len(np.unique((starts[kept] - since) // period))
        if stretches >= FEWEST_WINDOWS:
            return kept, f"the same {name.format(stretches)}"
    return None


def _matched(
    reference: Mapping[str, Any], current: Mapping[str, Any], ts: str
) -> tuple[Mapping[str, Any], str]:
    """Reference rows at the current window's times of day or week, if they are three times as many."""
    one, two = (_times(each[ts]) for each in (reference, current))
    if one is None or two is None:
        return reference, ""
    found = same_times(one, one, int(two.min()), int(two.max()))
    if found is None or found[0].sum() < max(FEWEST, FEWEST_WINDOWS * len(two)):
        return reference, ""
    kept, name = found
    rows = np.flatnonzero(kept)
    return {column: _taken(values, rows) for column, values in reference.items()}, name


def _in_order(window: str, columns: Mapping[str, Any], ts: str) -> Mapping[str, Any]:
    """Columns with their rows sorted by time."""
    try:
        found = arrow_of(columns[ts])
    except NotCompared as error:
        raise ValueError(f"{window}: event times expected in column {ts!r}: {error}") from None
    if len(found) and (found.null_count or not _is_time(found.type)):
        what = f"{found.null_count:,} without one" if found.null_count < len(found) else "none"
        what = what if _is_time(found.type) else str(found.type)
        raise ValueError(f"{window}: event times expected in column {ts!r}, found {what}")
    times = _times(columns[ts])
    if times is None or (times[1:] >= times[:-1]).all():
        return columns
    order = np.argsort(times, kind="stable")
    return {column: _taken(values, order) for column, values in columns.items()}


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _times(column: Any) -> NDArray[np.int64] | None:
    """Event times in microseconds; None without rows."""
    found = arrow_of(column)
    if not len(found):
        return None
    times: NDArray[np.int64] = found.cast(pa.timestamp("us"), safe=False).to_numpy().astype(np.int64)
    return times


def _taken(column: Any, rows: NDArray[np.intp]) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, list | tuple):
        return [column[row] for row in rows.tolist()]
    return column.take(pa.array(rows) if isinstance(column, pa.Array | pa.ChunkedArray) else rows)
