"""Incidents of warnings: shares of flags that have risen, by slice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from outrider.dataops.ledger.minutes import MINUTE_US

from .explanation import cause_json, explained
from .incident_writer import UNMUTED, CommittedUnit, IncidentWriter, is_unmuted
from .minute_counts import ALL, OF_VERSION, MinuteCounts
from .past_hours import StoredHours
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
from .version_causes import with_versions, worse_beside
from .watched_streams import FLAGS, WatchedStreams, causes_of_streams, stream_of


@dataclass(slots=True)
class ShareIncidents:
    """Incidents of warnings, one for each slice that explains alarms."""

    writer: IncidentWriter
    counts: MinuteCounts
    watched: WatchedStreams
    hours: StoredHours

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == FLAGS and row.level != "critical")

    def follow(self, connection: Connection, rows: Sequence[Row[Any]], unit: CommittedUnit) -> None:
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
        open_streams = {stream_of(one) for row in standing for one in row.details.get("explained_by", ())}
        open_streams |= {(name, ALL) for name, _ in open_streams}
        found = rate_alarms(
            self.counts, warnings, self.writer.rule, usual=usual,
            past=self.hours.at(connection, self.counts), standing=open_streams,
        )  # fmt: skip
        plain = [alarm for alarm in found if not alarm.slice.startswith(OF_VERSION)]
        if plain:
            first = min(plain, key=lambda alarm: (alarm.onset_us, -alarm.evidence))
            self._open_causes(connection, plain, first, warnings, standing, usual, now_us)
        else:
            self._open_versions(connection, found, standing, len(warnings), now_us)

    def _open_versions(
        self,
        connection: Connection,
        found: Sequence[RateAlarm],
        standing: Sequence[Row[Any]],
        assertions: int,
        now_us: int,
    ) -> None:
        """Open one incident for each version that is worse than those beside it."""
        told = [one for row in standing for one in row.details.get("explained_by", ())]
        versions = {one.get("version") for one in told}
        plain = {one["assertion"] for one in told if not one.get("version")}
        streams = assertions * max(1, len(self.counts.versions()))
        causes_of: dict[str, list[tuple[Cause, RateAlarm]]] = {}
        for alarm in found:
            cause = worse_beside(connection, self.counts, alarm, self.writer.rule, streams=streams)
            if cause is not None and cause.version not in versions and cause.assertion not in plain:
                causes_of.setdefault(cause.version, []).append((cause, alarm))
        for pairs in causes_of.values():
            pairs.sort(key=lambda pair: -pair[0].weight)
            self._write(connection, pairs[0][1], [cause for cause, _ in pairs], now_us)

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
        """Open one incident for each slice that explains the alarms, or for all records."""
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
        ranked = with_versions(connection, self.counts, alarm, told, self.writer.rule, usual=usual)
        part = "" if told[0].slice == ALL else told[0].slice
        self._write(connection, alarm, ranked, now_us, part=part, flags=sum(one.now.hits for one in told))

    def _write(
        self,
        connection: Connection,
        alarm: RateAlarm,
        ranked: Sequence[Cause],
        now_us: int,
        *,
        part: str = "",
        flags: int | None = None,
    ) -> None:
        writer, first = self.writer, ranked[0]
        details = explained(connection, writer.model, alarm, ranked, writer.rule, version=writer.version)
        begun = self.watched.begun(connection, now_us).get(first.assertion, 0)
        details["guarantee"]["weeks"] = self.hours.weeks(connection, since_us=begun)
        ids = details["records"]
        made = writer.new(
            first.assertion,
            FLAGS,
            "warning",
            now_us,
            part=part,
            flags=first.now.hits if flags is None else flags,
            record=ids[0] if ids else "",
            details=details,
        )
        writer.open(connection, made)

    def _join(self, connection: Connection, row: Row[Any], told: Sequence[Cause]) -> None:
        known = [(one["assertion"], one["slice"]) for one in causes_of_streams(row.details)]
        fresh = [one for one in cause_json(told) if (one["assertion"], one["slice"]) not in known]
        details = row.details | {"explained_by": [*row.details["explained_by"], *fresh]}
        self.writer.set(connection, row, details=details)

    def _recovered(
        self, row: Row[Any], levels: Mapping[str, str], begun: Mapping[str, int], now_us: int
    ) -> str:
        if now_us - row.opened_us < self.writer.rule.quiet_s * 1e6:
            return ""
        streams = causes_of_streams(row.details) or row.details["explained_by"]
        judging = [one for one in streams if levels.get(one["assertion"]) == "warning"]
        if not judging:
            return f"{row.assertion} is no assertion of level warning any more"
        first = judging[0]
        if begun.get(first["assertion"], 0) > now_us - self.writer.rule.quiet_s * 1e6:
            return ""  # suspended: what does not judge says nothing
        stream = stream_of(first)
        quiet = max(1, int(self.writer.rule.quiet_s * 1e6) // MINUTE_US)
        if stream[1].startswith(OF_VERSION) and not self.counts.of("", stream[1])[1][-quiet:].any():
            return f"version {first['version']} answers no more"
        before, now = (first[when]["share"] for when in ("before", "now"))
        most = max(before, first["before"]["high"])
        return why_over(self.counts, stream, before, now, self.writer.rule, most=most, since_us=row.opened_us)
