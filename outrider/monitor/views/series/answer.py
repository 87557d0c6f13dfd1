"""Answers of ``/v1/models/{model}/series`` and ``performance``: columns of figures by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from sqlalchemy import Connection
from typing_extensions import TypedDict

from outrider.assertions.statistics.performance import Estimated
from outrider.assertions.times import utc_text
from outrider.dataops.alarms.model_events import ModelEvent, model_events
from outrider.dataops.ledger.cube import FLAGS, GROUPS, MEASURES, OUTCOMES, RECORDS, Cube
from outrider.monitor.http.declared import FieldsOf, Time

from .counts import (
    SeriesCut,
    first_minute,
    flag_series,
    flagged_series,
    last_minute,
    record_series,
    with_largest_slices,
)
from .figures import SeriesRow, number
from .groups import CountedGroups, GroupCut, read_groups
from .measures import KINDS, measure_series
from .performance import read_performance
from .span import SeriesSpan, Versus, span_of

MEASURES_OF_SERIES = ("records", "flags", *KINDS)
MOST_EVENTS = 200
QUIET_US = 300_000_000
"""Time without records after which a model is quiet."""


class FigureFacts(TypedDict):
    """Figure of a whole range with its 95 % interval, or null."""

    value: float | None
    low: float | None
    high: float | None
    records: int
    effective: float


class FigureColumns(TypedDict):
    """Figures by step, as columns."""

    value: list[float | None]
    low: list[float | None]
    high: list[float | None]
    records: list[int]
    whole: FigureFacts


class SeriesFacts(FigureColumns):
    """One figure of one judged version over time, and of before."""

    measure: str
    statistic: str
    unit: str
    name: str
    version: str
    slice: str | None
    method: str
    versus: FigureColumns | None


EventFacts: TypeAlias = Annotated[
    ModelEvent, FieldsOf(ModelEvent, "EventFacts", about="Event beside series.", times=True)
]


class RangeFacts(TypedDict):
    """Compared range."""

    since: Time
    until: Time


class SeriesReport(TypedDict):
    """Series of a model, with a figure for each ``start``."""

    model: str
    since: Time
    until: Time
    step_s: int
    start: list[Time]
    versus: RangeFacts | None
    series: list[SeriesFacts]
    events: list[EventFacts]
    last_record: Time | None
    quiet_since: Time | None
    is_numeric: bool | None
    note: str | None
    slices_left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRequest:
    """Request for series, in microseconds; None is the default."""

    since_us: int | None = None
    until_us: int | None = None
    step_us: int | None = None
    versus: Versus | None = None
    now_us: int


def series_json(
    connection: Connection,
    wanted: SeriesCut,
    asked: SeriesRequest,
    *,
    measures: Sequence[str] = MEASURES_OF_SERIES,
) -> SeriesReport:
    """Counts and measures of a model over time. A ValueError's message begins with the parameter's name."""
    ages = _ages(measures)
    span = _span(connection, wanted.model, asked, ages)
    compared = _versus(span, asked, ages)
    wanted, left_out = with_largest_slices(connection, wanted, span)
    rows = _rows(connection, wanted, span, measures)
    before = [] if compared is None else _rows(connection, wanted, compared, measures)
    return _report(connection, wanted.model, span, asked, rows, before, left_out=left_out)


def performance_json(connection: Connection, wanted: SeriesCut, asked: SeriesRequest) -> SeriesReport:
    ages = (RECORDS, OUTCOMES)
    span = _span(connection, wanted.model, asked, ages)
    wanted, left_out = with_largest_slices(connection, wanted, span)
    found = read_performance(connection, wanted, span)
    compared = _versus(span, asked, ages)
    earlier = None if compared is None else read_performance(connection, wanted, compared)
    before = [] if earlier is None else [*earlier.labelled, *earlier.figures]
    rows = [*found.labelled, *found.figures]
    return _report(
        connection, wanted.model, span, asked, rows, before,
        left_out=left_out, is_numeric=found.is_numeric, note=found.note,
    )  # fmt: skip


def groups_json(
    connection: Connection, wanted: GroupCut, asked: SeriesRequest
) -> tuple[CountedGroups, SeriesReport]:
    """Rates of groups and their gaps, in all and over time; KeyError for an attribute never counted,
    ValueError as in :func:`series_json`."""
    ages = (RECORDS, GROUPS)
    span = _span(connection, wanted.model, asked, ages)
    compared = _versus(span, asked, ages)
    found = read_groups(connection, wanted, span)
    before = [] if compared is None else read_groups(connection, wanted, compared, must_know=False).rows
    report = _report(connection, wanted.model, span, asked, found.rows, before, left_out=0)
    return found, report


def _ages(measures: Sequence[str]) -> tuple[Cube, ...]:
    fine = any(name in KINDS for name in measures)
    return (RECORDS, FLAGS, MEASURES) if fine else (RECORDS, FLAGS)


def _span(connection: Connection, model: str, asked: SeriesRequest, ages: Sequence[Cube]) -> SeriesSpan:
    return span_of(
        since_us=asked.since_us,
        until_us=asked.until_us,
        step_us=asked.step_us,
        now_us=asked.now_us,
        first_us=first_minute(connection, model),
        ages=ages,
    )


def _versus(span: SeriesSpan, asked: SeriesRequest, ages: Sequence[Cube]) -> SeriesSpan | None:
    if asked.versus is None:
        return None
    before = span.before(asked.versus)
    finest = max(one.resolution_us(since_us=before.since_us, now_us=asked.now_us) for one in ages)
    if span.step_us % finest:
        raise ValueError(
            f"versus: counts from {utc_text(before.since_us)} on are kept by {finest // 1_000_000} s; "
            f"a step of as much expected, got {span.step_us // 1_000_000} s"
        )
    return before


def _rows(
    connection: Connection, wanted: SeriesCut, span: SeriesSpan, measures: Sequence[str]
) -> list[SeriesRow]:
    found: list[SeriesRow] = []
    for name in measures:
        if name == "records":
            found += record_series(connection, wanted, span)
        elif name == "flags":
            found += flag_series(connection, wanted, span)
        elif name == "flagged":
            found += flagged_series(connection, wanted, span)
        else:
            found += measure_series(connection, wanted, span, name)
    return found


def _report(
    connection: Connection,
    model: str,
    span: SeriesSpan,
    asked: SeriesRequest,
    rows: Sequence[SeriesRow],
    before: Sequence[SeriesRow],
    *,
    left_out: int,
    is_numeric: bool | None = None,
    note: str | None = None,
) -> SeriesReport:
    earlier = {row.key: row for row in before}
    compared = None if asked.versus is None else span.before(asked.versus)
    newest = last_minute(connection, model, now_us=asked.now_us)
    events = model_events(connection, model, since_us=span.since_us, until_us=span.until_us)
    is_quiet = newest is not None and asked.now_us - newest > QUIET_US
    return {
        "model": model,
        "since": utc_text(span.since_us),
        "until": utc_text(span.until_us),
        "step_s": span.step_us // 1_000_000,
        "start": [utc_text(us) for us in span.starts_us],
        "versus": None
        if compared is None
        else {"since": utc_text(compared.since_us), "until": utc_text(compared.until_us)},
        "series": [_facts(row, earlier.get(row.key)) for row in rows],
        "events": events[-MOST_EVENTS:],
        "last_record": None if newest is None else utc_text(newest),
        "quiet_since": utc_text(newest) if is_quiet and newest is not None else None,
        "is_numeric": is_numeric,
        "note": note,
        "slices_left_out": left_out,
    }


def _facts(row: SeriesRow, earlier: SeriesRow | None) -> SeriesFacts:
    key = row.key
    return {
        "measure": key.measure,
        "statistic": key.statistic,
        "unit": key.unit,
        "name": key.name,
        "version": key.version,
        "slice": key.slice,
        "method": row.method,
        **_columns(row),
        "versus": None if earlier is None else _columns(earlier),
    }


def _columns(row: SeriesRow) -> FigureColumns:
    return {
        "value": [number(point.value) for point in row.points],
        "low": [number(point.low) for point in row.points],
        "high": [number(point.high) for point in row.points],
        "records": [point.records for point in row.points],
        "whole": _figure(row.whole),
    }


def _figure(figure: Estimated) -> FigureFacts:
    return {
        "value": number(figure.value),
        "low": number(figure.low),
        "high": number(figure.high),
        "records": figure.records,
        "effective": round(figure.effective, 1),
    }
