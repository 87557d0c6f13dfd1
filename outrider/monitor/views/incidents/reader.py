"""Page of an incident: sentence, series around its onset, causes, records, history."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, select

from outrider.assertions.times import utc_text
from outrider.dataops.alarms.incident_row import IncidentRow, for_whom, guarantee_words
from outrider.dataops.alarms.stored_incidents import IncidentStep, list_incidents
from outrider.dataops.alarms.stored_incidents import read_incident as read_stored
from outrider.dataops.alarms.version_losses import LABEL
from outrider.dataops.models import registry
from outrider.dataops.state.clock import HOUR_US
from outrider.dataops.state.tables import AssertionRow, table_of
from outrider.monitor.queries.queries import RecordView, read_record
from outrider.monitor.views.series.answer import SeriesReport, SeriesRequest, performance_json, series_json
from outrider.monitor.views.series.counts import SeriesCut, first_minute

MOST_RECORDS = 5
LEAST_BEFORE_US = 600_000_000
"""Time before an onset that a chart shows, whatever was counted."""
MOST_CHART_US = 14 * 24 * HOUR_US
MOST_INCIDENTS, MOST_BESIDE = 1_000, 6
_MEASURES: Mapping[str, str] = {
    "flags": "flagged", "live_test": "live_tests", "performance": "performance",
}  # fmt: skip
"""Series of each kind; of the others, records."""
_SUBJECTS = ("assertion", "column", "statistic", "version", "slice")
_ASSERTION = table_of(AssertionRow)


@dataclass(frozen=True, slots=True)
class CauseLine:
    """One cause of an incident.

    Attributes
    ----------
    names
        Of assertion, column, statistic, version and slice, as far as it has them.
    before, now
        Share, or another figure, before the onset and since; None where unknown.
    ends
        Interval of each, or None.
    seen
        What each is of; None where unknown.
    text
        Sentence, or what else it says.
    """

    names: Mapping[str, str]
    before: float | None
    now: float | None
    ends: tuple[tuple[float, float] | None, tuple[float, float] | None]
    seen: tuple[int | None, int | None]
    is_share: bool
    text: str


@dataclass(frozen=True, slots=True)
class IncidentView:
    """Everything that the page of an incident shows.

    Attributes
    ----------
    chart
        Series around the onset; None where nothing is counted.
    onset_us
        First and last time of the onset.
    whole
        Figures before and when it opened, of the incident itself.
    records, gone
        Records that show it, and ids of those that are not stored any more.
    beside
        Other incidents whose onset lies within an hour, nearest first.
    former
        Version that the champion replaced; None where there is none.
    has_page
        True where it is about an assertion or a live test that judges.
    """

    row: IncidentRow
    whom: str
    guarantee: str
    chart: SeriesReport | None
    onset_us: tuple[int, int] | None
    whole: CauseLine
    causes: tuple[CauseLine, ...]
    records: tuple[RecordView, ...]
    gone: tuple[str, ...]
    history: tuple[IncidentStep, ...]
    beside: tuple[IncidentRow, ...]
    former: str | None
    has_page: bool


def read_incident(engine: Engine, incident: str, *, now_us: int) -> IncidentView:
    """Read the page of an incident of any kind.

    Raises
    ------
    NotFound
        If there is none of that id.
    """
    with engine.connect() as connection:
        row = read_stored(connection, incident, now_us=now_us)
        chart = _chart(connection, row, now_us)
        beside = _beside(connection, row, now_us)
        champion = registry.champion(connection, row.model)
        has_page = _is_active(connection, row)
    ids = list(dict.fromkeys(row.details.get("records") or [row.first_record] * bool(row.first_record)))
    found = {id_: read_record(engine, row.model, id_) for id_ in ids[:MOST_RECORDS]}
    return IncidentView(
        row=row,
        whom=for_whom(row),
        guarantee=guarantee_words(row),
        chart=chart,
        onset_us=onset_of(row),
        whole=cause_line({when: row.details.get(when) for when in ("before", "now")}),
        causes=tuple(cause_line(cause) for cause in row.details.get("explained_by") or ()),
        records=tuple(view for view in found.values() if view is not None),
        gone=tuple(id_ for id_, view in found.items() if view is None),
        history=tuple(_history(row)),
        beside=tuple(beside),
        former=None if champion is None else champion.replaced,
        has_page=has_page,
    )


def onset_of(row: IncidentRow) -> tuple[int, int] | None:
    """First and last time of an incident's onset; None without one."""
    onset = row.details.get("onset")
    if not isinstance(onset, Mapping):
        return None
    first, last = (int(datetime.fromisoformat(onset[end]).timestamp() * 1e6) for end in ("first", "last"))
    return first, last


def _beside(connection: Connection, row: IncidentRow, now_us: int) -> list[IncidentRow]:
    """Other incidents of the model that began about the same time: one cause may be behind all."""
    if not row.model:
        return []
    first, last = onset_of(row) or (row.opened_us, row.opened_us)
    near = []
    for other in list_incidents(connection, now_us=now_us, model=row.model, limit=MOST_INCIDENTS):
        begun, ended = onset_of(other) or (other.opened_us, other.opened_us)
        apart = max(begun - last, first - ended, 0)
        if other.id != row.id and apart <= HOUR_US:
            near.append((apart, other.opened_us, other.id, other))
    return [other for *_, other in sorted(near, key=lambda one: one[:3])[:MOST_BESIDE]]


def cause_line(cause: Mapping[str, Any]) -> CauseLine:
    """Cause from an entry of ``explained_by``, of any kind of incident.

    Examples
    --------
    >>> line = cause_line({"column": "age", "before": {"value": 31.0}, "now": {"value": 44.5}})
    >>> line.names, line.before, line.now, line.is_share
    ({'column': 'age'}, 31.0, 44.5, False)
    """
    sides = [cause.get(when) for when in ("before", "now")]
    known = [side if isinstance(side, Mapping) else {} for side in sides]
    is_share = any("share" in side for side in known)
    values = [_figure(side.get("share", side.get("value"))) for side in known]
    plain = [_figure(side) for side in sides]  # a bare number instead of a figure with its interval
    told = cause.get("sentence") or cause.get("change") or ""
    if not told and cause.get("flags") is not None:
        told = f"{cause['flags']:,} flags"
    return CauseLine(
        {name: str(cause[name]) for name in _SUBJECTS if cause.get(name)},
        values[0] if values[0] is not None else plain[0],
        values[1] if values[1] is not None else plain[1],
        (_ends(known[0]), _ends(known[1])),
        (_count(known[0]), _count(known[1])),
        is_share,
        str(told),
    )


def _figure(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count(side: Mapping[str, Any]) -> int | None:
    """Observations of a side, of which dispersion may have left a fraction."""
    seen = _figure(side.get("seen"))
    return None if seen is None else round(seen)


def _ends(side: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = _figure(side.get("low")), _figure(side.get("high"))
    return None if low is None or high is None else (low, high)


def _chart(connection: Connection, row: IncidentRow, now_us: int) -> SeriesReport | None:
    """Series of the stream from well before the onset to now, or to after the end."""
    if not row.model:
        return None
    onset = onset_of(row) or (row.opened_us, row.opened_us)
    until = min(now_us, now_us if row.resolved_us is None else row.resolved_us + HOUR_US)
    until = max(until, row.opened_us + 1)
    since = max(onset[0] - max(HOUR_US, until - onset[0]), until - MOST_CHART_US)
    since = max(since, min(first_minute(connection, row.model) or 0, onset[0] - LEAST_BEFORE_US))
    asked = SeriesRequest(since_us=since, until_us=until, now_us=max(now_us, until))
    measure = _MEASURES.get(row.kind, "records")
    if row.kind == "silence" and row.assertion == "labels":
        measure = "performance"
    elif row.kind == "silence" and _is_active(connection, row):
        measure = "flagged"
    part = row.slice or None
    if measure == "performance":
        is_class = row.slice.startswith(LABEL)
        return performance_json(connection, SeriesCut(row.model, slice=None if is_class else part), asked)
    name = row.assertion if measure in ("flagged", "live_tests") else None
    return series_json(connection, SeriesCut(row.model, slice=part, name=name), asked, measures=(measure,))


def _is_active(connection: Connection, row: IncidentRow) -> bool:
    own = _ASSERTION.c.model == row.model, _ASSERTION.c.name == row.assertion, _ASSERTION.c.active
    return connection.scalar(select(_ASSERTION.c.name).where(*own).limit(1)) is not None


def _history(row: IncidentRow) -> Iterator[IncidentStep]:
    """Steps of an incident, oldest first."""
    yield {"at": utc_text(row.opened_us), "what": "opened", "by": "", "why": row.level, "until": None}
    yield from row.details.get("history") or ()
