"""Records that state another version than the champion's, by minute of receipt.

A promotion takes time to roll out, and what a client held back comes late: a mismatch is one that has gone on
for ten minutes, in each two minutes with records, since the champion became one.
"""

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, select

from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.cube import STATED
from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.ledger.stated_values import version_words
from outrider.dataops.state.improvement_tables import ModelVersion
from outrider.dataops.state.rows import add_to_rows
from outrider.dataops.state.tables import VersionCount, table_of

from .incident_writer import UNMUTED, IncidentWriter, is_unmuted

VERSION = "version_mismatch"
WINDOW_US = 10 * MINUTE_US
STRETCH_US = 2 * MINUTE_US
KEPT_US = 60 * MINUTE_US
LEAST_SHARE = 0.01
MOST_TOLD = 10
_COUNT, _VERSION = table_of(VersionCount), table_of(ModelVersion)


@dataclass(frozen=True, slots=True)
class StatedVersions:
    champion: str
    changed_us: int
    by_version: dict[str, int]
    since_us: int | None

    @property
    def records(self) -> int:
        return sum(self.by_version.values())

    @property
    def others(self) -> int:
        return self.records - self.by_version.get(self.champion, 0)

    @property
    def share(self) -> float:
        return self.others / self.records if self.records else 0.0

    def is_lasting(self, now_us: int) -> bool:
        return self.since_us is not None and self.since_us <= now_us - WINDOW_US and self.share >= LEAST_SHARE

    @property
    def sentence(self) -> str:
        others = [(name, n) for name, n in Tally(self.by_version).most_common() if name != self.champion]
        told = [f"{n / self.records:.1%} {version_words(name)}" for name, n in others[:MOST_TOLD]]
        if rest := sum(n for _, n in others[MOST_TOLD:]):
            told.append(f"{rest / self.records:.1%} {len(others) - MOST_TOLD} further versions")
        words = ", ".join(told)
        return f"of {self.records} records that state a version {words}; version {self.champion} is champion"


@dataclass(slots=True)
class VersionMismatchIncidents:
    writer: IncidentWriter

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return bool(row.kind == VERSION)

    def follow_minute(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        found = stated_versions(connection, self.writer.model, now_us=now_us)
        standing = False
        for row in rows:
            if why := self._ended(row, found, now_us) or (UNMUTED if is_unmuted(row, now_us) else ""):
                self.writer.resolve(connection, row, now_us, why=why)
            elif found is not None:
                standing = True
                last_us = now_us if found.share >= LEAST_SHARE else row.last_flag_us
                flags = max(row.flags, found.others)
                self.writer.set(connection, row, flags=flags, last_flag_us=max(last_us, row.last_flag_us))
        if found is not None and not standing and found.is_lasting(now_us):
            details = {"champion": found.champion, "versions": found.by_version}
            made = self.writer.new(
                "version mismatch", VERSION, "warning", now_us, flags=found.others, note=found.sentence,
                details=details,
            )  # fmt: skip
            self.writer.open(connection, made)
        forget_versions(connection, self.writer.model, before_us=now_us - KEPT_US)

    def _ended(self, row: Row[Any], found: StatedVersions | None, now_us: int) -> str:
        if found is None:
            return "there is no champion any more"
        if row.opened_us < found.changed_us <= now_us:
            return f"version {found.champion} became champion"
        if found.records:
            return f"records state version {found.champion}" if found.share < LEAST_SHARE else ""
        return self.writer.quiet_words if self.writer.is_quiet(row, now_us) else ""


def count_versions(connection: Connection, effects: Effects) -> None:
    tally: Tally[tuple[int, str]] = Tally()
    for seq, version in zip(effects.records["seq"], effects.stated_versions, strict=True):
        if version is not None:
            tally[minute_of(effects.received.get(seq, effects.received_us)), version] += 1
    rows = [(effects.model, minute, version, n) for (minute, version), n in tally.items()]
    add_to_rows(connection, VersionCount, rows)


def forget_versions(connection: Connection, model: str, *, before_us: int | None = None) -> None:
    own = [_COUNT.c.model == model, *([] if before_us is None else [_COUNT.c.minute_us < before_us])]
    connection.execute(delete(_COUNT).where(*own))


def stated_versions(connection: Connection, model: str, *, now_us: int) -> StatedVersions | None:
    pointer = connection.execute(
        select(_VERSION.c.version, _VERSION.c.changed_us).where(
            _VERSION.c.model == model, _VERSION.c.status == "champion"
        )
    ).first()
    if pointer is None:
        return None
    # The minute in which it changed holds records of before; a clock that was set back since says nothing.
    changed_us = pointer.changed_us if pointer.changed_us <= now_us else 0
    begin = max(now_us - KEPT_US, minute_of(changed_us) + MINUTE_US if changed_us else 0)
    rows = connection.execute(
        STATED.query(model, "minute_us", "version", sums=("records",), since_us=begin, until_us=now_us + 1)
    ).all()
    recent: Tally[str] = Tally()
    for row in rows:
        if row.minute_us > now_us - WINDOW_US:
            recent[row.version] += row.records
    since = _since(rows, pointer.version, now_us)
    return StatedVersions(pointer.version, pointer.changed_us, dict(recent), since)


def _since(rows: Any, champion: str, now_us: int) -> int | None:
    """First minute of the stretches up to now that all hold records of other versions."""
    stretches: dict[int, list[tuple[int, bool, int]]] = {}
    for row in rows:
        place = (now_us - row.minute_us) // STRETCH_US
        stretches.setdefault(place, []).append((row.minute_us, row.version != champion, row.records))
    since = None
    for place in sorted(stretches):
        others = sum(n for _, is_other, n in stretches[place] if is_other)
        if others < LEAST_SHARE * sum(n for _, _, n in stretches[place]):
            break
        since = min(minute for minute, is_other, _ in stretches[place] if is_other)
    return since
