"""Share of an incident at present, or over its whole time.

Counted as its alarm counts it: entities with a flag among all entities, each once a minute of receipt; a
record without an entity is its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from outrider.assertions.statistics.wilson import wilson_interval
from outrider.assertions.times import utc_text
from outrider.dataops.ledger.cube import FLAGS, RECORDS, Cube, flags_of
from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.ledger.stated_values import slice_words, version_words

from .incident_row import IncidentRow, IncidentShare

RECENT_MINUTES, MOST_MINUTES = 5, 60
"""Recent minutes, and the most where few entities came."""
ENOUGH = 30
"""Entities that a share needs, where the last hour has as many."""
QUIET_MINUTES = 15
"""Minutes without a record after which a share is a past one; also the stretch of a highest share."""


@dataclass(frozen=True, slots=True)
class _Stream:
    assertion: str
    slice: str | None
    version: str | None

    @property
    def cut(self) -> dict[str, str | None]:
        return {"slice": self.slice, "version": self.version}

    @property
    def words(self) -> str:
        told = [] if self.version is None else [version_words(self.version)]
        if self.slice is not None:
            told.append(slice_words(self.slice) or "no slice")
        return f"entities of {' in '.join(told)}" if told else "all entities"


def read_share(connection: Connection, row: IncidentRow, *, now_us: int) -> IncidentShare | None:
    """Share of an incident of flags; None for other kinds, and without counts since the onset."""
    if row.kind != "flags":
        return None
    if row.resolved_us is not None and "share" in row.details:
        stored: Mapping[str, Any] | None = row.details["share"]
        return None if stored is None else IncidentShare(**stored)
    stream, begin = _stream(row), minute_of(_onset_us(row))
    if row.resolved_us is not None:
        return _shared(connection, row.model, stream, begin, minute_of(row.resolved_us) + MINUTE_US)
    stop = minute_of(now_us)
    cells = RECORDS.table.c
    query = RECORDS.query(row.model, "minute_us", since_us=begin, until_us=stop, of=stream.cut)
    last = connection.scalar(query.where(cells.entities > 0).order_by(cells.minute_us.desc()).limit(1))
    if last is None:
        return None
    is_now = stop - last <= QUIET_MINUTES * MINUTE_US
    until = stop if is_now else last + MINUTE_US
    return _shared(connection, row.model, stream, begin, until, is_now=is_now)


def _shared(
    connection: Connection, model: str, stream: _Stream, begin: int, until: int, *, is_now: bool | None = None
) -> IncidentShare | None:
    """Share of the newest minutes, or of all where ``is_now`` is None."""
    first = begin if is_now is None else max(begin, until - MOST_MINUTES * MINUTE_US)
    seen = _minutes(connection, RECORDS, model, stream.cut, first, until)
    if not seen:
        return None
    flagged_of = flags_of(stream.assertion, **stream.cut)
    flags = _minutes(connection, FLAGS, model, flagged_of, first, until)
    hits = {minute: min(flags.get(minute, 0), count) for minute, count in seen.items()}
    since = begin if is_now is None else max(begin, _since(seen, until))
    flagged, count = _share(hits, seen, since, until)
    low, high = (round(float(end), 4) for end in wilson_interval(flagged, count))
    return IncidentShare(
        share=round(flagged / count, 4), low=low, high=high, flagged=flagged, seen=count, of=stream.words,
        since=utc_text(since), until=utc_text(until), is_now=bool(is_now),
        highest=_highest(hits, seen) if is_now is None else None,
    )  # fmt: skip


def _stream(row: IncidentRow) -> _Stream:
    causes = [cause for cause in row.details.get("explained_by") or () if cause.get("assertion")]
    if row.level == "critical":  # one incident, however many slices
        parts = {cause.get("slice") or "" for cause in causes}
        return _Stream(row.assertion, parts.pop() if len(parts) == 1 and all(parts) else None, None)
    first = causes[0] if causes else {"assertion": row.assertion, "slice": row.slice}
    return _Stream(first["assertion"], first.get("slice") or None, first.get("version") or None)


def _onset_us(row: IncidentRow) -> int:
    onset = row.details.get("onset")
    if not isinstance(onset, Mapping):
        return row.opened_us
    return int(datetime.fromisoformat(onset["likeliest"]).timestamp() * 1e6)


def _minutes(
    connection: Connection, cube: Cube, model: str, of: Mapping[str, str | None], begin: int, stop: int
) -> dict[int, int]:
    rows = connection.execute(
        cube.query(model, "minute_us", sums=("entities",), since_us=begin, until_us=stop, of=of)
    )
    return {minute: int(count) for minute, count in rows if count}


def _since(seen: Mapping[int, int], until: int) -> int:
    count = 0
    for back in range(1, MOST_MINUTES + 1):
        begin = until - back * MINUTE_US
        count += seen.get(begin, 0)
        if back >= RECENT_MINUTES and count >= ENOUGH:
            return begin
    return until - MOST_MINUTES * MINUTE_US


def _share(hits: Mapping[int, int], seen: Mapping[int, int], since: int, until: int) -> tuple[int, int]:
    own = [minute for minute in seen if since <= minute < until]
    return sum(hits[minute] for minute in own), sum(seen[minute] for minute in own)


def _highest(hits: Mapping[int, int], seen: Mapping[int, int]) -> float | None:
    width = QUIET_MINUTES * MINUTE_US
    quarters = (
        _share(hits, seen, at, at + width) for at in sorted({minute - minute % width for minute in seen})
    )
    return max((round(hit / count, 4) for hit, count in quarters if count >= ENOUGH), default=None)
