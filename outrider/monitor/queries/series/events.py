"""Events beside series: of champions, assertions and stated versions."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from outrider.dataops.state.improvement_tables import ChampionChange
from outrider.dataops.state.tables import AssertionRow, RecordCount, table_of

from .span import SeriesSpan

MOST_EVENTS = 200
_CHANGE, _ASSERTION, _RECORD = table_of(ChampionChange), table_of(AssertionRow), table_of(RecordCount)


@dataclass(frozen=True, slots=True)
class SeriesEvent:
    """Change that may explain a series."""

    at_us: int
    kind: str
    """``registered``, ``promoted``, ``overridden``, ``rolled_back``, ``assertion_revision`` or
    ``version_seen``."""
    name: str
    """Version or assertion."""
    text: str
    """Sentence for people."""


def read_events(connection: Connection, model: str, span: SeriesSpan) -> list[SeriesEvent]:
    """Events of a range, oldest first, the newest ``MOST_EVENTS``."""
    found = [
        *_changes(connection, model, span),
        *_revisions(connection, model, span),
        *_versions(connection, model, span),
    ]
    return sorted(found, key=lambda event: (event.at_us, event.kind, event.name))[-MOST_EVENTS:]


def _changes(connection: Connection, model: str, span: SeriesSpan) -> list[SeriesEvent]:
    at = _CHANGE.c.at_us
    query = select(_CHANGE).where(_CHANGE.c.model == model, at >= span.since_us, at < span.until_us)
    return [
        SeriesEvent(row.at_us, row.action, row.version, _text(row.action, row.version, row.replaced, row.by))
        for row in connection.execute(query)
    ]


def _text(action: str, version: str, replaced: str | None, by: str) -> str:
    told = f"version {version} {action.replace('_', ' ')}"
    if action == "rolled_back":
        told = f"rolled back to version {version}"
    after = f", after version {replaced}" if replaced else ""
    return f"{told}{after}{f' (by {by})' if by else ''}"


def _revisions(connection: Connection, model: str, span: SeriesSpan) -> list[SeriesEvent]:
    """Revisions of assertions, but for those that a model began with."""
    at = _ASSERTION.c.first_seen_us
    query = select(_ASSERTION).where(
        _ASSERTION.c.model == model, at >= span.since_us, at < span.until_us, _ASSERTION.c.first_seq > 0
    )
    return [
        SeriesEvent(
            row.first_seen_us, "assertion_revision", row.name, f"revision {row.revision[:8]} of {row.name}"
        )
        for row in connection.execute(query)
    ]


def _versions(connection: Connection, model: str, span: SeriesSpan) -> list[SeriesEvent]:
    """First records of versions that production states, but for the model's first."""
    first = func.min(_RECORD.c.minute_us).label("first_us")
    query = select(_RECORD.c.version, first).where(_RECORD.c.model == model).group_by(_RECORD.c.version)
    rows = sorted(connection.execute(query).all(), key=lambda row: row.first_us)
    return [
        SeriesEvent(row.first_us, "version_seen", row.version, f"first records of version {row.version}")
        for row in rows[1:]
        if row.version and span.since_us <= row.first_us < span.until_us
    ]
