"""Incidents of critical assertions: rules, whose first flag opens one."""

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row

from outrider.dataops.flags.rate_limit import NewFlags
from outrider.dataops.ledger.minutes import minute_of

from .explanation import cause_json, explained, records
from .incident_writer import UNMUTED, CommittedUnit, IncidentWriter, is_unmuted
from .minute_counts import ALL, MinuteCounts
from .rate_alarms import MOST_CAUSES, Cause, FlaggedShare, RateAlarm, causes
from .watched_streams import FLAGS


@dataclass(slots=True)
class CriticalIncidents:
    """Incidents of critical assertions, one each however many slices follow."""

    writer: IncidentWriter
    counts: MinuteCounts

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == FLAGS and row.level == "critical")

    def follow(self, connection: Connection, rows: Sequence[Row[Any]], unit: CommittedUnit) -> None:
        fired: dict[str, list[NewFlags]] = {}
        for (assertion, _), members in unit.flags.items():
            if members[0].level == "critical":
                fired.setdefault(assertion, []).extend(members)
        for row in rows:
            new = fired.get(row.assertion)
            if new is None:
                if self.writer.is_quiet(row, unit.now_us):
                    self.writer.resolve(connection, row, unit.now_us, why=self.writer.quiet_words)
            elif is_unmuted(row, unit.now_us):
                self.writer.resolve(connection, row, unit.now_us, why=UNMUTED)
            else:
                del fired[row.assertion]
                self.writer.add(connection, row, sum(one.flags for one in new), unit.now_us)
        for assertion, new in sorted(fired.items()):
            self._open(connection, assertion, new, unit.now_us)

    def follow_minute(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:  # noqa: ARG002
        for row in rows:
            alarm = RateAlarm(row.assertion, ALL, 0.0, *(minute_of(row.opened_us),) * 3)
            told = causes(self.counts, [row.assertion], alarm, self.writer.rule)
            if told:
                first = cause_json(told[:1])[0]
                details = row.details | {
                    "explained_by": cause_json(told),
                    "before": first["before"],
                    "now": first["now"],
                    "records": records(connection, self.writer.model, told[0]),
                }
                self.writer.set(connection, row, details=details)

    def _open(self, connection: Connection, assertion: str, new: Sequence[NewFlags], now_us: int) -> None:
        flags: Tally[str] = Tally()
        for one in new:
            flags[one.slice] += one.flags
        most = flags.most_common(MOST_CAUSES)
        told = [Cause(assertion, part, FlaggedShare(0, 0), FlaggedShare(n, n), 0.0) for part, n in most]
        begin = min(one.minute_us for one in new)
        alarm = RateAlarm(assertion, ALL, 0.0, begin, begin, now_us)
        writer = self.writer
        # Counts of this unit are flags alone: shares come with the minute.
        details = explained(
            connection, writer.model, alarm, told, writer.rule, version=writer.version
        ) | {
            "guarantee": None,
            "before": None,
            "now": None,
            "explained_by": [{"assertion": assertion, "slice": part, "flags": n} for part, n in most],
            "records": [new[0].first_record],
        }  # fmt: skip
        made = writer.new(
            assertion, FLAGS, "critical", now_us, flags=flags.total(), record=new[0].first_record
        )
        writer.open(connection, replace(made, details=details))
