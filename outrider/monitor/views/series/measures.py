"""Measures over time: calls, live tests, agreement, delays of labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func

from outrider.assertions.statistics.performance import Estimated, MeasureHistogram
from outrider.dataops.ledger.cube import MEASURES

from .counts import SeriesCut
from .figures import SeriesKey, SeriesRow, group_cells, rows_by_step
from .span import SeriesSpan

Statistic = Callable[[MeasureHistogram], Estimated]


def _sum(values: MeasureHistogram) -> Estimated:
    found = float(values.total.sum())
    return Estimated(found, found, found, int(values.records.sum()), float(values.weight.sum()))


def _median(values: MeasureHistogram) -> Estimated:
    return values.quantile(0.5)


def _high(values: MeasureHistogram) -> Estimated:
    return values.quantile(0.95)


_TIMES: Mapping[str, Statistic] = {"p50": _median, "p95": _high, "mean": MeasureHistogram.mean}
_AMOUNTS: Mapping[str, Statistic] = {"mean": MeasureHistogram.mean, "sum": _sum}
_SHARE: Mapping[str, Statistic] = {"share": MeasureHistogram.share}
KINDS: Mapping[str, tuple[str, str, Mapping[str, Statistic]]] = {
    "live_tests": ("live:", "failures per question", _SHARE),
    "agreement": ("agreement", "records", _SHARE),
    "label_delay": ("label_delay_s", "seconds", _TIMES),
    "latency": ("latency_s", "seconds", _TIMES),
    "first_token": ("first_token_s", "seconds", _TIMES),
    "input_tokens": ("input_tokens", "tokens", _AMOUNTS),
    "output_tokens": ("output_tokens", "tokens", _AMOUNTS),
    "cost": ("cost_usd", "US dollars", _AMOUNTS),
    "errors": ("errors", "calls", _SHARE),
}
"""By series: stored measure (or the beginning of its name), unit and statistics."""


def measure_series(connection: Connection, wanted: SeriesCut, span: SeriesSpan, kind: str) -> list[SeriesRow]:
    """Statistics of one measure over time, one series per judged version.

    Parameters
    ----------
    kind
        One of :data:`KINDS`.
    """
    stored, unit, statistics = KINDS[kind]
    cells = _cells(connection, wanted, span, stored)
    found = []
    for statistic, of in statistics.items():
        figures = rows_by_step(span, cells.groups, cells.places, partial(cells.figure, of))
        for (measure, version, slice_), (points, whole) in figures.items():
            name = measure.removeprefix(stored) if stored.endswith(":") else ""
            found.append(SeriesRow(SeriesKey(kind, statistic, unit, name, version, slice_), points, whole))
    return found


def mean_series(
    connection: Connection, wanted: SeriesCut, span: SeriesSpan, *, stored: str, statistic: str
) -> list[SeriesRow]:
    """Mean of one stored measure over time, as a figure of performance."""
    cells = _cells(connection, wanted, span, stored)
    figures = rows_by_step(span, cells.groups, cells.places, partial(cells.figure, MeasureHistogram.mean))
    return [
        SeriesRow(SeriesKey("performance", statistic, "", "", version, part), points, whole, "plain")
        for (_, version, part), (points, whole) in figures.items()
    ]


def _cells(connection: Connection, wanted: SeriesCut, span: SeriesSpan, stored: str) -> "_Cells":
    """Counts of one measure, or of all whose name begins so."""
    cells = MEASURES.table.c
    own = cells.measure == stored
    if stored.endswith(":"):
        # Up to the next letter behind the colon: a range, which the key of the table finds.
        own = (cells.measure >= stored) & (cells.measure < stored[:-1] + ";")
        if wanted.name is not None:
            own = cells.measure == stored + wanted.name
    query = (
        wanted.steps(MEASURES, span, "measure", "bucket", sums=MEASURES.sums)
        .where(own)
        .having(func.sum(cells.records) > 0)
        .order_by(cells.measure, cells.version, wanted.part(MEASURES.table), cells.bucket)
    )
    return _Cells.of(connection.execute(query).all())


@dataclass(frozen=True, slots=True)
class _Cells:
    """Rows of counts, by series, step and bucket."""

    groups: Mapping[tuple[str, str, str | None], NDArray[np.intp]]
    places: NDArray[np.intp]
    buckets: NDArray[np.int64]
    records: NDArray[np.int64]
    sums: NDArray[np.float64]
    """Weight, squares and total, shape (3, rows)."""

    @classmethod
    def of(cls, rows: Sequence[Any]) -> "_Cells":
        sums = [(row.weight, row.squares, row.total) for row in rows]
        return cls(
            group_cells([(row.measure, row.version, row.part) for row in rows]),
            np.array([row.step for row in rows], dtype=np.intp),
            np.array([row.bucket for row in rows], dtype=np.int64),
            np.array([row.records for row in rows], dtype=np.int64),
            np.array(sums, dtype=np.float64).reshape(-1, 3).T,
        )

    def figure(self, of: Statistic, cells: NDArray[np.intp]) -> Estimated:
        """Statistic of some rows, those of one bucket put together."""
        buckets, place = np.unique(self.buckets[cells], return_inverse=True)
        records = np.zeros(len(buckets), dtype=np.int64)
        np.add.at(records, place, self.records[cells])
        sums = np.stack([np.bincount(place, weights=one[cells]) for one in self.sums]).astype(np.float64)
        return of(MeasureHistogram(records, sums[0], sums[1], sums[2]))
