"""Flag rate limit: exact counts per minute, storms sampled."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.commit import Effects, own_flag_ids
from outrider.dataops.ledger.counters import FLAGS_OF, RECORDS_OF
from outrider.dataops.ledger.cube import FLAGS
from outrider.dataops.ledger.minutes import minute_of
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.state.rows import TableColumns, add_to_rows, among
from outrider.dataops.state.tables import Flag, FlagCount, Record, RecordCount, table_of

_FLAG = table_of(Flag)
_RECORD = table_of(Record)
_PLACE = ("id", "slice", "entity", "is_unnamed")
_NOWHERE = ("", "", False)
_Places = Mapping[str, tuple[str, str, bool]]


@dataclass(frozen=True, slots=True)
class FlagBudget:
    """Budget of an assertion's flags with evidence per minute.

    The first ``per_minute`` are kept, then the n-th with probability ``(per_minute / n)²`` by a hash of
    seed and flag: about twice ``per_minute`` at most. The choice depends on the order of flags alone.
    """

    per_minute: int = 1000
    seed: int = 0

    def admit(self, ids: Sequence[str], *, before: int) -> NDArray[np.bool_]:
        """Mask of the kept flags, shape (flags,), after ``before`` earlier ones of the minute."""
        kept = np.ones(len(ids), dtype=np.bool_)
        for at in range(max(0, self.per_minute - before), len(ids)):
            kept[at] = self._draw(ids[at]) < (self.per_minute / (before + at + 1)) ** 2
        return kept

    def _draw(self, flag: str) -> float:
        salt = (self.seed % 2**64).to_bytes(8, "big")
        digest = blake2b(flag.encode(), digest_size=8, salt=salt).digest()
        return int.from_bytes(digest, "big") / 2.0**64


@dataclass(frozen=True, slots=True)
class NewFlags:
    assertion: str
    revision: str
    level: str
    slice: str
    minute_us: int
    flags: int
    kept: int
    first_record: str
    version: str = ""
    entities: int = 0
    """Entities among them new to the minute."""


_FLAGGED = 3
_MOST_HELD, _OLDER = 100_000, 120


@dataclass(slots=True)
class MinuteEntities:
    """Entities of a model counted in the latest minutes, each once a minute.

    Flagged ones are kept longer than seen ones, because windows flag records of earlier blocks. In
    memory: after a restart an entity may count twice in its minute.
    """

    minutes: dict[int, set[tuple[str, ...]]] = field(default_factory=dict)

    def add(self, minute_us: int, *key: str) -> bool:
        if minute_us not in self.minutes:
            self.minutes[minute_us] = set()
            self._forget()
        known = self.minutes.get(minute_us, set())
        if key in known:
            return False
        known.add(key)
        return True

    def _forget(self) -> None:
        minutes = sorted(self.minutes)[:-3]
        if minutes:
            self.minutes[minutes[-1]] = {key for key in self.minutes[minutes[-1]] if len(key) == _FLAGGED}
        held = 0
        for minute in reversed(minutes):
            held += len(self.minutes[minute])
            if held > _MOST_HELD:
                del self.minutes[minute]
        for minute in minutes[:-_OLDER]:
            self.minutes.pop(minute, None)


def count_flags(
    connection: Connection, effects: Effects, budget: FlagBudget, entities: MinuteEntities | None = None
) -> list[NewFlags]:
    """Count the new flags of a unit exactly, and sample excess ones; in the transaction of
    `ledger.commit.apply`, before it. Flags not kept are named in ``effects.thinned``; an event that
    the next blocks may find again is stored without evidence, or it would be counted twice."""
    entities = MinuteEntities() if entities is None else entities
    _count_records(connection, effects, entities)
    ids = effects.flags["id"]
    new, events = _new_flags(connection, effects)
    effects.new_flags = new
    places = _places(connection, effects, {effects.flags["record_id"][row] for row in new})
    found: list[NewFlags] = []
    emptied: set[str] = set()
    groups = _by_minute(effects, new)
    counted = _counted(connection, effects, groups)
    for (assertion, minute), rows in groups.items():
        kept = budget.admit([ids[row] for row in rows], before=counted.get((assertion, minute), 0)).tolist()
        out = {ids[row] for row, keep in zip(rows, kept, strict=True) if not keep}
        emptied |= out & events
        effects.thinned |= out - events
        effects.counts[f"thinned:{assertion}"] += len(out)
        found += _grouped(effects.flags, minute, rows, kept, places, entities)
    if emptied:
        effects.flags["evidence"] = [
            None if identity in emptied else evidence
            for identity, evidence in effects.flags.select("id", "evidence")
        ]
    counts = [
        (
            *(effects.model, effects.owner, n.assertion, n.revision, n.slice, n.minute_us, n.version),
            *(n.flags, n.kept, n.entities),
        )
        for n in found
    ]
    add_to_rows(connection, FlagCount, counts)
    for one in found:
        effects.counts[f"{FLAGS_OF}{one.version}"] += one.flags
    return found


def _new_flags(connection: Connection, effects: Effects) -> tuple[list[int], set[str]]:
    """Rows of flags new to the database, in the order of the stream, and all ids of events."""
    flags = effects.flags
    first = {identity: row for row, identity in reversed([*enumerate(flags["id"])])}
    own = own_flag_ids(flags, slot=effects.owner)
    events = {identity for identity, row in first.items() if identity != own[row]}
    query = select(_FLAG.c.id).where(among(_FLAG.c.id, events))
    known = set(connection.scalars(query)) if events else set()
    new = [row for identity, row in first.items() if identity not in known]
    # The host counts what it found; what was found before is no new flag.
    again = Tally(flags["assertion"])
    again.subtract(Tally(flags["assertion"][row] for row in new))
    for assertion, count in again.items():
        effects.counts[f"flags:{assertion}"] -= count
    order = list(flags.select("seq", "row", "id"))
    return sorted(new, key=order.__getitem__), events


def _by_minute(effects: Effects, rows: Iterable[int]) -> dict[tuple[str, int], list[int]]:
    groups: dict[tuple[str, int], list[int]] = {}
    places = list(effects.flags.select("assertion", "seq", "ts_us"))
    for row in rows:
        assertion, seq, ts_us = places[row]
        received = effects.received.get(seq, effects.received_us) or ts_us
        groups.setdefault((assertion, minute_of(received)), []).append(row)
    return groups


def _grouped(
    flags: TableColumns,
    minute: int,
    rows: Sequence[int],
    kept: Sequence[bool],
    places: _Places,
    entities: MinuteEntities,
) -> Iterator[NewFlags]:
    groups: dict[tuple[str, str, str], list[tuple[int, bool]]] = {}
    for row, keep in zip(rows, kept, strict=True):
        part, _, is_unnamed = places.get(flags["record_id"][row], _NOWHERE)
        version = OTHERS if is_unnamed and flags["slot"][row] == CHAMPION else flags["version"][row] or ""
        own = flags["revision"][row], part, version
        groups.setdefault(own, []).append((row, keep))
    for (revision, part, version), members in groups.items():
        first = members[0][0]
        assertion = flags["assertion"][first]
        records = (flags["record_id"][row] for row, _ in members)
        owners = (places.get(record, _NOWHERE)[1] or record for record in records)
        yield NewFlags(
            assertion,
            revision,
            flags["level"][first],
            part,
            minute,
            len(members),
            sum(keep for _, keep in members),
            flags["record_id"][first],
            version,
            sum(entities.add(minute, assertion, part, owner) for owner in owners),
        )


def _places(connection: Connection, effects: Effects, wanted: Set[str]) -> dict[str, tuple[str, str, bool]]:
    """Slice, entity and version of each flagged record; records of earlier blocks are looked up."""
    columns = effects.records.select(*_PLACE)
    found = {
        id_: (part or "", entity or "", bool(own)) for id_, part, entity, own in columns if id_ in wanted
    }
    if missing := wanted - found.keys():
        query = select(*(_RECORD.c[name] for name in _PLACE)).where(
            _RECORD.c.model == effects.model, among(_RECORD.c.id, missing)
        )
        rows = connection.execute(query)
        found.update((row.id, (row.slice or "", row.entity or "", bool(row.is_unnamed))) for row in rows)
    return found


def _count_records(connection: Connection, effects: Effects, entities: MinuteEntities) -> None:
    records: Tally[tuple[str, int, str]] = Tally()
    owners: Tally[tuple[str, int, str]] = Tally()
    places = zip(effects.minutes, effects.judged_versions, strict=True)
    owned = effects.records.select("slice", "entity")
    for (part, entity), (minute, version) in zip(owned, places, strict=True):
        key = part or "", minute, version
        records[key] += 1
        owners[key] += entity is None or entities.add(key[1], key[0], entity)
    rows = [(effects.model, *key, count, owners[key]) for key, count in records.items()]
    add_to_rows(connection, RecordCount, rows)
    for (_, _, version), count in records.items():
        effects.counts[f"{RECORDS_OF}{version}"] += count


def _counted(
    connection: Connection, effects: Effects, groups: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    assertions, minutes = {name for name, _ in groups}, {minute for _, minute in groups}
    if not assertions:
        return {}
    of = {"slot": effects.owner, "assertion": tuple(sorted(assertions)), "minute_us": tuple(sorted(minutes))}
    rows = connection.execute(FLAGS.query(effects.model, "assertion", "minute_us", sums=("flags",), of=of))
    return {(assertion, minute): int(flags) for assertion, minute, flags in rows}
