"""Changes of a model that may explain a series or an alarm."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, or_, select

from outrider.dataops.ledger.first_seen import CONFIGURATION, VERSION
from outrider.dataops.state.improvement_tables import ChampionChange
from outrider.dataops.state.series_tables import FirstSeen
from outrider.dataops.state.tables import AssertionRow, table_of

REVISION = "assertion_revision"
VERSION_SEEN = "version_seen"
RELOAD = "reload"
_TEXTS: Mapping[str, str] = {
    VERSION: "first records of version {}",
    CONFIGURATION: "configuration {} loaded",
    "prompt_version": "first records of prompt version {}",
    "client_version": "first records of client version {}",
}
_KINDS: Mapping[str, str] = {VERSION: VERSION_SEEN, CONFIGURATION: RELOAD}
_CHANGE, _ASSERTION, _SEEN = table_of(ChampionChange), table_of(AssertionRow), table_of(FirstSeen)


@dataclass(frozen=True, slots=True)
class ModelEvent:
    at_us: int
    kind: str
    """``registered``, ``promoted``, ``overridden``, ``rolled_back``, ``assertion_revision``,
    ``version_seen``, ``prompt_version``, ``client_version`` or ``reload``."""
    name: str
    """Version, assertion or digest of the configuration."""
    text: str
    """Sentence for people."""


def model_events(connection: Connection, model: str, *, since_us: int, until_us: int) -> list[ModelEvent]:
    found = [
        *_changes(connection, model, since_us, until_us),
        *_revisions(connection, model, since_us, until_us),
        *_first_seen(connection, model, since_us, until_us),
    ]
    return sorted(found, key=lambda event: (event.at_us, event.kind, event.name))


def nearest_event(
    connection: Connection,
    model: str,
    *,
    since_us: int,
    until_us: int,
    onset_us: int,
    left_out: Collection[str] = (),
) -> ModelEvent | None:
    """Event next to an onset.

    A registered version answers no one yet, and the first records of a promoted one are its promotion;
    ``left_out`` kinds cannot explain the change.
    """
    found = model_events(connection, model, since_us=since_us, until_us=until_us + 1)
    crowned = {one.name for one in found if one.kind in ("promoted", "overridden", "rolled_back")}
    near = (
        one
        for one in found
        if one.kind not in ("registered", *left_out)
        and not (one.kind == VERSION_SEEN and one.name in crowned)
    )
    return min(near, key=lambda one: abs(one.at_us - onset_us), default=None)


def _changes(connection: Connection, model: str, since_us: int, until_us: int) -> list[ModelEvent]:
    at = _CHANGE.c.at_us
    query = select(_CHANGE).where(_CHANGE.c.model == model, at >= since_us, at < until_us)
    return [
        ModelEvent(row.at_us, row.action, row.version, _text(row.action, row.version, row.replaced, row.by))
        for row in connection.execute(query)
    ]


def _text(action: str, version: str, replaced: str | None, by: str) -> str:
    told = f"version {version} {action.replace('_', ' ')}"
    if action == "rolled_back":
        told = f"rolled back to version {version}"
    after = f", after version {replaced}" if replaced else ""
    return f"{told}{after}{f' (by {by})' if by else ''}"


def _revisions(connection: Connection, model: str, since_us: int, until_us: int) -> list[ModelEvent]:
    """Revisions of assertions, without the first ones."""
    at = _ASSERTION.c.first_seen_us
    query = select(_ASSERTION).where(
        _ASSERTION.c.model == model, at >= since_us, at < until_us, _ASSERTION.c.first_seq > 0
    )
    return [
        ModelEvent(row.first_seen_us, REVISION, row.name, f"revision {row.revision[:8]} of {row.name}")
        for row in connection.execute(query)
    ]


def _first_seen(connection: Connection, model: str, since_us: int, until_us: int) -> list[ModelEvent]:
    """Names that records state for the first time, without the first of a kind, and configurations."""
    query = select(_SEEN).where(or_(_SEEN.c.model == model, _SEEN.c.model == ""))
    rows = connection.execute(query.order_by(_SEEN.c.at_us)).all()
    first: dict[str, int] = {}
    for row in rows:
        first.setdefault(row.kind, row.at_us)
    return [
        ModelEvent(row.at_us, _KINDS.get(row.kind, row.kind), row.name, _TEXTS[row.kind].format(row.name))
        for row in rows
        if since_us <= row.at_us < until_us and row.at_us > first[row.kind]
    ]
