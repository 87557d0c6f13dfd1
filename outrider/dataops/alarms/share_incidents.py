"""Incidents of warnings: shares of flags that have risen, by slice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from .explanation import cause_json, explained, sentence
from .incident_writer import UNMUTED, CommittedUnit, IncidentWriter, is_unmuted
from .minute_counts import ALL, MinuteCounts
from .rate_alarms import (
    MOST_CAUSES,
    Cause,
    FlaggedShare,
    RateAlarm,
    Usual,
    causes,
    rate_alarms,
    why_over,
)
from .version_causes import with_versions
from .watched_streams import FLAGS, WatchedStreams, causes_of_streams

FLOOD = "flood"
"""Of an earlier release: further slices together; silence ends it."""


@dataclass(slots=True)
class ShareIncidents:
    """Incidents of warnings, one for each slice that explains alarms."""

    writer: IncidentWriter
    counts: MinuteCounts
    watched: WatchedStreams

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        """True for an incident of this kind."""
        return row.kind in (FLAGS, FLOOD) and row.level != "critical"

    def follow(self, connection: Connection, rows: Sequence[Row[Any]], unit: CommittedUnit) -> None:
        """Count the flags of open incidents."""
        for row in rows:
            members = {(one["assertion"], one["slice"]) for one in causes_of_streams(row.details)}
            new = sum(
                one.flags
                for (assertion, part), found in unit.flags.items()
                for one in found
                if (assertion, part) in members or (assertion, "") in members
            )
            if new:
                self.writer.add(connection, row, new, unit.now_us)

    def follow_minute(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        """Open incidents of risen shares, join causes, end recovered incidents."""
        levels, begun = self.watched.levels(connection), self.watched.begun(connection, now_us)
        standing: list[Row[Any]] = []
        for row in rows:
            if is_unmuted(row, now_us):
                self.writer.resolve(connection, row, now_us, why=UNMUTED)
            elif row.status != "muted" and (why := self._recovered(row, levels, begun, now_us)):
                self.writer.resolve(connection, row, now_us, why=why)
            else:
                standing.append(row)
        warnings = [name for name, level in sorted(levels.items()) if level == "warning"]
        usual = self.watched.usual(connection, begun, since_us=self.counts.start_us)
        open_streams = {
            (one["assertion"], one["slice"] or ALL)
            for row in standing
            for one in causes_of_streams(row.details)
        }
        open_streams |= {(name, ALL) for name, _ in open_streams}
        found = rate_alarms(self.counts, warnings, self.writer.rule, usual=usual, standing=open_streams)
        if found:
            first = min(found, key=lambda alarm: (alarm.onset_us, -alarm.evidence))
            self._open_causes(connection, found, first, warnings, standing, usual, now_us)

    def _open_causes(
        self,
        connection: Connection,
        found: Sequence[RateAlarm],
        first: RateAlarm,
        warnings: Sequence[str],
        standing: Sequence[Row[Any]],
        usual: Usual,
        now_us: int,
    ) -> None:
        """One incident for each slice that explains the alarms, or for all records."""
        alarmed = {alarm.assertion for alarm in found}
        told = causes(self.counts, warnings, first, self.writer.rule, usual=usual)
        parts = list(dict.fromkeys(one.slice for one in told if one.assertion in alarmed))
        if not parts or len(parts) > MOST_CAUSES:
            whole = [
                Cause(one.assertion, ALL, *self._shares(one, usual), one.evidence)
                for one in sorted(found, key=lambda one: -one.evidence)
            ]
            told, parts = [*whole, *told], [ALL]
        by_slice = {row.slice or ALL: row for row in standing}
        for part in parts:
            own = told if part == ALL else [one for one in told if one.slice == part]
            if part in by_slice:
                self._join(connection, by_slice[part], own)
                continue
            alarm = max(
                (one for one in found if one.slice == part), key=lambda one: one.evidence, default=first
            )
            self._open_cause(connection, alarm, own, usual, now_us)

    def _shares(self, alarm: RateAlarm, usual: Usual) -> tuple[FlaggedShare, FlaggedShare]:
        at = self.counts.index(alarm.onset_us)
        hits, seen = usual.of(self.counts, (alarm.assertion, alarm.slice))
        return (
            FlaggedShare(int(hits[:at].sum()), int(seen[:at].sum())),
            FlaggedShare(int(hits[at:].sum()), int(seen[at:].sum())),
        )

    def _open_cause(
        self,
        connection: Connection,
        alarm: RateAlarm,
        told: Sequence[Cause],
        usual: Usual,
        now_us: int,
    ) -> None:
        writer, first = self.writer, told[0]
        ranked = with_versions(connection, self.counts, alarm, told, writer.rule, usual=usual)
        details = explained(connection, writer.model, alarm, ranked, writer.rule, version=writer.version)
        ids = details["records"]
        made = writer.new(
            first.assertion,
            FLAGS,
            "warning",
            now_us,
            part="" if first.slice == ALL else first.slice,
            flags=sum(one.now.hits for one in told),
            record=ids[0] if ids else "",
            note=sentence(details),
            details=details,
        )
        writer.open(connection, made)

    def _join(self, connection: Connection, row: Row[Any], told: Sequence[Cause]) -> None:
        """Add causes to an open incident of the same slice."""
        known = [(one["assertion"], one["slice"]) for one in causes_of_streams(row.details)]
        fresh = [one for one in cause_json(told) if (one["assertion"], one["slice"]) not in known]
        details = row.details | {"explained_by": [*row.details["explained_by"], *fresh]}
        self.writer.set(connection, row, details=details)

    def _recovered(
        self, row: Row[Any], levels: Mapping[str, str], begun: Mapping[str, int], now_us: int
    ) -> str:
        """Reason that an incident of a warning is over; empty while it stands."""
        if row.kind != FLAGS or not row.details.get("now"):  # of an earlier release
            return self.writer.quiet_words if self.writer.is_quiet(row, now_us) else ""
        if now_us - row.opened_us < self.writer.rule.quiet_s * 1e6:
            return ""
        judging = [one for one in causes_of_streams(row.details) if levels.get(one["assertion"]) == "warning"]
        if not judging:
            return f"{row.assertion} is no assertion of level warning any more"
        first = judging[0]
        if begun.get(first["assertion"], 0) > now_us - self.writer.rule.quiet_s * 1e6:
            return ""  # suspended: what does not judge says nothing
        stream = first["assertion"], first["slice"] or ALL
        before, now = (first[when]["share"] for when in ("before", "now"))
        most = max(before, first["before"]["high"])
        return why_over(self.counts, stream, before, now, self.writer.rule, most=most, since_us=row.opened_us)
