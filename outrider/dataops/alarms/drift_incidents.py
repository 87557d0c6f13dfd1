"""Incidents of columns: drift as a ticket, and silent columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, select

from outrider.assertions.profiling import RANKS, ColumnSummary, summaries
from outrider.assertions.statistics.performance import number_text
from outrider.dataops.ledger.stored_profiles import ProfileRange, read_profile
from outrider.dataops.state.tables import Incident, table_of

from .drift_causes import ColumnChange, DriftHistory, ShareEstimate, of_one_onset
from .drift_streams import StreamCounts
from .drift_watch import WEEK_WINDOWS, DriftReference, DriftWatch
from .explanation import MOST_CAUSES_TOLD, event_json, event_near, iso, us_of
from .incident_writer import UNMUTED, IncidentWriter, is_unmuted
from .minute_counts import ALL
from .model_events import REVISION
from .rate_alarms import RateAlarm
from .silence import SILENT
from .stored_incidents import PERSON

DRIFT = "drift"
COLUMN = "column"
_AT_ONCE = 24
"""Windows examined in one minute, after a pause."""
_OTHER_REFERENCE = "another reference has begun: a version was promoted, or a person said what is normal"
_RECENT = 3
"""Windows that decide whether a column has recovered."""
_ENOUGH = 10.0
"""Observations below which a share says nothing."""
_INCIDENT = table_of(Incident)


@dataclass(slots=True)
class DriftIncidents:
    """Incidents of columns, one for each onset, resolved once the first column has recovered.

    Drift without measured loss is of level ``info``; a column that is gone, null or constant is of kind
    ``silence``.
    """

    writer: IncidentWriter
    watch: DriftWatch
    _recent: list[StreamCounts] = field(default_factory=list)
    """Newest windows while an incident is open."""

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == DRIFT or (row.kind == SILENT and row.details.get("silent") == COLUMN))

    def follow_minute(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        self.watch.load(connection)
        self._take_as_normal(connection, now_us)
        standing = self._left(connection, rows, now_us, is_over=self._is_asked_for)
        for _ in range(_AT_ONCE):
            counts = self.watch.next(connection, now_us, standing=bool(standing))
            if counts is None:
                break
            self._recent = [*self._recent, counts][-_RECENT:] if standing else []
            standing = self._left(connection, standing, now_us, is_over=self._recovered)
            standing = self._decide(connection, standing, counts, now_us)
        self.watch.store(connection)

    def _take_as_normal(self, connection: Connection, now_us: int) -> None:
        """Make the windows since the onset the reference where a person resolved an incident."""
        if self.watch.reference is None:
            return
        begun_us = self.watch.reference.begun_us
        own = _INCIDENT.c.model == self.writer.model, _INCIDENT.c.status == "resolved"
        query = select(_INCIDENT).where(*own, _INCIDENT.c.opened_us >= begun_us)
        ended = [
            row
            for row in connection.execute(query.where(_INCIDENT.c.kind.in_((DRIFT, SILENT))))
            if self.is_own(row) and row.details.get("ended_by") == PERSON
        ]
        if ended:
            self.watch.begin(now_us, max(us_of(row.details["onset"]["likeliest"]) for row in ended))

    def _left(
        self,
        connection: Connection,
        rows: Sequence[Row[Any]],
        now_us: int,
        *,
        is_over: Callable[[Row[Any], int], str],
    ) -> list[Row[Any]]:
        """Resolve recovered incidents; returns the others."""
        left = []
        for row in rows:
            if why := is_over(row, now_us):
                self.writer.resolve(connection, row, now_us, why=why)
                self._restart(row)
            else:
                left.append(row)
        return left

    def _is_asked_for(self, row: Row[Any], now_us: int) -> str:
        """Reason to resolve an incident whatever its column does; empty without any."""
        reference = self.watch.reference
        if reference is not None and row.opened_us < reference.begun_us:
            return _OTHER_REFERENCE
        return UNMUTED if is_unmuted(row, now_us) else ""

    def _recovered(self, row: Row[Any], now_us: int) -> str:
        del now_us  # windows say how much time has passed
        reference = self.watch.reference
        assert reference is not None
        is_young = reference.next_us < row.opened_us + (_RECENT - 1) * self.watch.width_us
        if row.opened_us < reference.begun_us:  # promoted in this minute
            return _OTHER_REFERENCE
        if row.status == "muted" or len(self._recent) < _RECENT or is_young:
            return ""
        first, stream = row.details["explained_by"][0], row.details["stream"]
        hits = sum(float(one.hits[stream, 0]) for one in self._recent)
        seen = sum(float(one.seen[stream, 0]) for one in self._recent)
        if seen < _ENOUGH:
            return ""
        share, before, now = hits / seen, first["before"]["share"], first["now"]["share"]
        if abs(share - before) >= abs(share - now):
            return ""
        return f"{first['assertion']} is what it was before, for {_RECENT} windows"

    def _restart(self, row: Row[Any]) -> None:
        """Reset the streams of a resolved incident."""
        reference = self.watch.reference
        if reference is not None and reference.watch is not None:
            reference.watch.restart(_streams_of(reference, [row]))

    def _decide(
        self, connection: Connection, standing: list[Row[Any]], counts: StreamCounts, now_us: int
    ) -> list[Row[Any]]:
        """Open incidents of what alarms after a window, or join those of one onset; returns all open ones."""
        reference = self.watch.reference
        assert reference is not None
        assert reference.watch is not None
        known = _streams_of(reference, standing) | reference.unknown
        alarms = reference.watch.look(counts.hits[:, 0], counts.seen[:, 0], standing=known)
        if not alarms.any():
            return standing
        width = self.watch.width_us
        begin = max(reference.since_us, reference.next_us - WEEK_WINDOWS * width)
        read = self.watch.read(connection, begin, reference.next_us)
        history = DriftHistory(reference.streams, reference.watch, read)
        for changes in of_one_onset(history.changes(alarms)):
            ticket = _Ticket(history, history.causes(changes, alpha=self.writer.rule.alpha), begin, width)
            same = next((row for row in standing if ticket.is_of(row)), None)
            if same is None:
                self._open(connection, ticket, now_us)
            else:
                self._join(connection, same, ticket)
        return [row for row in self.writer.unresolved(connection) if self.is_own(row)]

    def _open(self, connection: Connection, ticket: "_Ticket", now_us: int) -> None:
        first, details = ticket.first, self._details(connection, ticket)
        made = self.writer.new(
            first.share.column,
            ticket.kind,
            "warning" if first.is_silent else "info",
            now_us,
            part=_part(first),
            note=_sentence(details),
            details=details,
        )
        self.writer.open(connection, made)

    def _join(self, connection: Connection, row: Row[Any], ticket: "_Ticket") -> None:
        known = {(one["assertion"], one["slice"]) for one in row.details["explained_by"]}
        fresh = [
            one for one in self._causes(connection, ticket) if (one["assertion"], one["slice"]) not in known
        ]
        details = row.details | {"explained_by": [*row.details["explained_by"], *fresh]}
        self.writer.set(connection, row, details=details, note=_sentence(details))

    def _causes(self, connection: Connection, ticket: "_Ticket") -> list[dict[str, Any]]:
        medians = self._medians(connection, ticket)
        return [_cause(one, medians.get(one.share.column, "")) for one in ticket.told[:MOST_CAUSES_TOLD]]

    def _details(self, connection: Connection, ticket: "_Ticket") -> dict[str, Any]:
        writer, reference, first = self.writer, self.watch.reference, ticket.first
        assert reference is not None
        times = ticket.times
        near = RateAlarm(first.share.column, first.slice, first.weight, times[1], times[0], times[2])
        event = event_near(connection, writer.model, near, left_out=(REVISION,))
        causes = self._causes(connection, ticket)
        return {
            "onset": {"first": iso(times[0]), "likeliest": iso(times[1]), "last": iso(times[2])},
            "before": causes[0]["before"], "now": causes[0]["now"], "explained_by": causes,
            "severity": "page" if first.is_silent else "ticket", "stream": first.stream,
            "reference": {
                "since": iso(reference.since_us), "until": iso(reference.until_us),
                "dataset": reference.streams.dataset,
            },
            "version": writer.version, "versions": dict(ticket.history.counts.versions),
            "event": event_json(event),
            "records": [], "action": _action(first),
            "page": drift_page(writer.model, _part(first), reference, since_us=times[1]),
            "guarantee": {"alpha": writer.rule.alpha, "horizon_s": writer.rule.horizon_s},
        } | ({"silent": COLUMN} if first.is_silent else {})  # fmt: skip

    def _medians(self, connection: Connection, ticket: "_Ticket") -> dict[str, str]:
        """Medians of numeric columns before and since, as sentences; they decide nothing."""
        wanted = [one.share.column for one in ticket.told if one.share.change == "above"]
        reference, onset_us = self.watch.reference, ticket.times[1]
        if not wanted or reference is None:
            return {}
        part = _part(ticket.first) or None
        spans = (reference.since_us, min(reference.until_us, onset_us)), (onset_us, reference.next_us)
        found = []
        for since, until in spans:
            span = ProfileRange(since_us=since, until_us=until, slice=part)
            stored = read_profile(connection, self.writer.model, span)
            found.append({} if stored is None else {one.name: one for one in summaries(stored.profile)})
        both = {name: [_median(side.get(name)) for side in found] for name in wanted}
        return {
            name: f"median {number_text(one, digits=4)} → {number_text(two, digits=4)}"
            for name, (one, two) in both.items()
            if one < two or one > two
        }


@dataclass(frozen=True, slots=True)
class _Ticket:
    history: DriftHistory
    told: Sequence[ColumnChange]
    begin_us: int
    width_us: int

    @property
    def first(self) -> ColumnChange:
        return self.told[0]

    @property
    def kind(self) -> str:
        return SILENT if self.first.is_silent else DRIFT

    @property
    def times(self) -> tuple[int, int, int]:
        """First, likeliest and last time of the onset."""
        first = self.first
        at = [self.begin_us + window * self.width_us for window in (first.first, first.onset, first.last + 1)]
        return at[0], at[1], at[2]

    def is_of(self, row: Row[Any]) -> bool:
        onset = row.details["onset"]
        return (
            row.kind == self.kind
            and us_of(onset["first"]) < self.times[2]
            and self.times[0] < us_of(onset["last"])
        )


def drift_page(model: str, part: str, reference: DriftReference, *, since_us: int) -> str:
    since = max(since_us, reference.until_us)
    known = f"{iso(reference.since_us)}..{iso(reference.until_us)}"
    wanted = {"since": iso(since), "until": iso(reference.next_us), "reference": known}
    return f"/m/{quote(model, safe='')}/drift?{urlencode(wanted | ({'slice': part} if part else {}))}"


def _streams_of(reference: DriftReference, rows: Sequence[Row[Any]]) -> NDArray[np.bool_]:
    columns = {one["assertion"] for row in rows for one in row.details.get("explained_by", ())}
    found = np.zeros(reference.streams.size, dtype=np.bool_)
    found[reference.streams.of(columns)] = True
    return found


def _part(change: ColumnChange) -> str:
    return "" if change.slice == ALL else change.slice


def _action(change: ColumnChange) -> str:
    if change.is_silent or change.share.change in ("unseen", "missing"):
        return "check_sender"
    return "label" if change.share.column.startswith("outputs.") else "retrain"


def _cause(change: ColumnChange, median: str) -> dict[str, Any]:
    words = f"{median}; {change.words}" if median else change.words
    sides = {"before": _estimate(change.before), "now": _estimate(change.now)}
    known = {"assertion": change.share.column, "slice": _part(change), "change": words}
    return known | sides | {"weight": round(change.weight, 1)}


def _estimate(found: ShareEstimate) -> dict[str, float]:
    low, high = found.interval
    figures = {"share": found.share, "low": low, "high": high, "seen": found.seen}
    return {name: round(value, 4) for name, value in figures.items()}


def _sentence(details: dict[str, Any]) -> str:
    first, *rest = details["explained_by"]
    where = f" on slice {first['slice']}" if first["slice"] else ""
    others = [name for name in dict.fromkeys(one["assertion"] for one in rest) if name != first["assertion"]]
    more = f"; also {', '.join(others[:3])}{' and others' if others[3:] else ''}" if others else ""
    return f"{first['assertion']}{where}: {first['change']} since {details['onset']['likeliest']}{more}"


def _median(found: ColumnSummary | None) -> float:
    return float(found.quantiles[RANKS.index(0.5)]) if found is not None and found.quantiles else float("nan")
