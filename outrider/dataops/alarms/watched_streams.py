"""Watched streams of flags, and the usual minutes of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from outrider.dataops.flags.registered_assertions import suspensions
from outrider.dataops.ledger.minutes import MINUTE_US, minutes_of
from outrider.dataops.state.tables import AssertionRow, Incident, table_of

from .explanation import us_of
from .minute_counts import ALL, OF_VERSION
from .rate_alarms import Stream, Usual
from .stored_incidents import PERSON

FLAGS = "flags"
_INCIDENT, _ASSERTION = table_of(Incident), table_of(AssertionRow)


@dataclass(slots=True)
class WatchedStreams:
    model: str
    _minutes: dict[int, int] = field(default_factory=dict)

    def levels(self, connection: Connection) -> dict[str, str]:
        own = _ASSERTION.c.model == self.model, _ASSERTION.c.active, _ASSERTION.c.kind == "assertion"
        rows = connection.execute(select(_ASSERTION.c.name, _ASSERTION.c.level).where(*own))
        return dict(map(tuple, rows))

    def begun(self, connection: Connection, now_us: int) -> dict[str, int]:
        """Time from which each assertion judges: its first block, or last suspension."""
        names = select(_ASSERTION.c.name, func.min(_ASSERTION.c.first_seq).label("seq"))
        names = names.where(_ASSERTION.c.model == self.model, _ASSERTION.c.kind == "assertion")
        begun: dict[str, int] = {}
        for name, seq in connection.execute(names.group_by(_ASSERTION.c.name)):
            if seq and seq not in self._minutes:
                self._minutes[seq] = minutes_of(connection, self.model, [seq]).get(seq, 0)
            minute = self._minutes.get(seq, 0)
            begun[name] = minute + MINUTE_US if minute < now_us else 0  # the clock was set back since
        for one in suspensions(connection, self.model):
            begun[one.assertion] = max(begun.get(one.assertion, 0), one.until_us)
        return begun

    def usual(self, connection: Connection, begun: Mapping[str, int], *, since_us: int) -> Usual:
        """Usual minutes of each stream; what a person resolved is a new normal."""
        since: dict[Stream, int] = {}
        left_out: dict[Stream, list[tuple[int, int]]] = {}
        own = _INCIDENT.c.model == self.model, _INCIDENT.c.kind == FLAGS, _INCIDENT.c.level == "warning"
        ended = _INCIDENT.c.resolved_us > since_us
        for row in connection.execute(select(_INCIDENT).where(*own, ended)):
            for one in row.details.get("explained_by", ()):
                for stream in {stream_of(one), (one["assertion"], ALL)}:
                    if row.details.get("ended_by") == PERSON:
                        since[stream] = max(since.get(stream, 0), row.resolved_us)
                    else:
                        begin = us_of(row.details["onset"]["first"])
                        left_out.setdefault(stream, []).append((begin, row.resolved_us))
        return Usual(begun, since, left_out)


def stream_of(cause: Mapping[str, Any]) -> Stream:
    version = cause.get("version", "")
    return cause["assertion"], OF_VERSION + version if version else cause["slice"] or ALL


def causes_of_streams(details: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for one in details.get("explained_by", ()) if not one.get("version")]
