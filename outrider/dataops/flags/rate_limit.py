"""Flag rate limit: exact counts per minute, and sampled flags.

Sampled are the flags of an assertion in a storm.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from outrider.dataops.ledger.commit import FLAG, RECORD, Effects, keep_stored_ids, own_flag_id
from outrider.dataops.state.rows import add_to_rows
from outrider.dataops.state.tables import Flag, FlagCount, Record, RecordCount, table_of

MINUTE_US = 60_000_000
_FLAG = table_of(Flag)
_COUNT = table_of(FlagCount)
_RECORD = table_of(Record)
_ID, _SUBJECT, _ASSERTION, _REVISION, _LEVEL, _EVIDENCE, _SEQ, _ROW, _TS_US = (
    FLAG.index(name)
    for name in ["id", "record_id", "assertion", "revision", "level", "evidence", "seq", "row", "ts_us"]
)
"""Places of columns in the tuples of flags."""
_RECORD_ID, _RECORD_SEQ, _RECORD_TS_US, _SLICE = (
    RECORD.index(name) for name in ["id", "seq", "ts_us", "slice"]
)


@dataclass(frozen=True, slots=True)
class FlagBudget:
    """Budget of an assertion's flags with evidence per minute.

    The first ``per_minute`` are; after them the n-th with probability ``(per_minute / n)²``, by a hash of
    seed and flag: at most about twice ``per_minute`` a minute, however long the storm. The same flags in the
    same order give the same choice, wherever the stream is cut or the worker starts again.

    Examples
    --------
    >>> budget = FlagBudget(per_minute=2, seed=1)
    >>> budget.admit(["a", "b", "c", "d", "e", "f"], before=0).tolist()[:2]
    [True, True]
    >>> budget.admit(["b"], before=1).tolist()
    [True]
    """

    per_minute: int = 1000
    seed: int = 0

    def admit(self, ids: Sequence[str], *, before: int) -> NDArray[np.bool_]:
        """Mask of the kept flags, shape (flags,).

        Parameters
        ----------
        ids
            The flags' ids in the order of the stream.
        before
            How many flags of this assertion the minute has counted already.
        """
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
    """New flags of one assertion in one slice and minute."""

    assertion: str
    revision: str
    level: str
    slice: str
    minute_us: int
    flags: int
    kept: int
    first_record: str


def count_flags(connection: Connection, effects: Effects, budget: FlagBudget) -> list[NewFlags]:
    """Count the new flags of a unit exactly, and sample excess ones.

    Call it before :func:`outrider.dataops.ledger.commit.apply`, in the same transaction. Flags
    that are not kept are named in ``effects.thinned``.
    An event that the next blocks may find again stands in ``flag`` in any case,
    or it would be counted twice: it only loses its evidence.
    """
    _count_records(connection, effects)
    if effects.earlier_ids:
        keep_stored_ids(connection, effects, effects.earlier_ids, slot=effects.owner)
    flags, events = _new_flags(connection, effects)
    slices = _slices(connection, effects, flags)
    found: list[NewFlags] = []
    emptied: dict[str, Sequence[Any]] = {}
    groups = _by_minute(effects, flags)
    counted = _counted(connection, effects, groups)
    for (assertion, minute), members in groups.items():
        kept = budget.admit([flag[_ID] for flag in members], before=counted.get((assertion, minute), 0))
        for flag in (flag for flag, keep in zip(members, kept, strict=True) if not keep):
            if flag[_ID] in events:
                emptied[flag[_ID]] = (*flag[:_EVIDENCE], None, *flag[_EVIDENCE + 1 :])
            else:
                effects.thinned.add(flag[_ID])
        effects.counts[f"thinned:{assertion}"] += len(members) - int(kept.sum())
        found += _grouped(assertion, minute, members, kept.tolist(), slices)
    if emptied:
        effects.flags = [emptied.get(flag[_ID], flag) for flag in effects.flags]
    rows = [
        (
            effects.model,
            effects.owner,
            new.assertion,
            new.revision,
            new.slice,
            new.minute_us,
            new.flags,
            new.kept,
        )
        for new in found
    ]
    add_to_rows(connection, FlagCount, rows)
    return found


def _new_flags(connection: Connection, effects: Effects) -> tuple[list[Sequence[Any]], set[str]]:
    """Flags that the database does not have, in the order of the stream, and which of them are events."""
    unique = {flag[_ID]: flag for flag in reversed(effects.flags)}
    events = {flag[_ID] for flag in unique.values() if flag[_ID] != own_flag_id(flag, slot=effects.owner)}
    known: set[str] = set()
    ids = sorted(events)
    for start in range(0, len(ids), 500):
        query = select(_FLAG.c.id).where(_FLAG.c.id.in_(ids[start : start + 500]))
        known.update(connection.execute(query).scalars())
    new = [flag for identity, flag in unique.items() if identity not in known]
    # The host counts what it found; what was found before is no new flag.
    again = Tally(flag[_ASSERTION] for flag in effects.flags)
    again.subtract(Tally(flag[_ASSERTION] for flag in new))
    for assertion, count in again.items():
        effects.counts[f"flags:{assertion}"] -= count
    return sorted(new, key=lambda flag: (flag[_SEQ], flag[_ROW], flag[_ID])), events


def _by_minute(
    effects: Effects, flags: Sequence[Sequence[Any]]
) -> dict[tuple[str, int], list[Sequence[Any]]]:
    groups: dict[tuple[str, int], list[Sequence[Any]]] = {}
    for flag in flags:
        received = effects.received.get(flag[_SEQ], effects.received_us) or flag[_TS_US]
        groups.setdefault((flag[_ASSERTION], minute_of(received)), []).append(flag)
    return groups


def _grouped(
    assertion: str,
    minute: int,
    flags: Sequence[Sequence[Any]],
    kept: Sequence[bool],
    slices: Mapping[str, str],
) -> Iterator[NewFlags]:
    groups: dict[tuple[str, str], list[tuple[Sequence[Any], bool]]] = {}
    for flag, keep in zip(flags, kept, strict=True):
        groups.setdefault((flag[_REVISION], slices.get(flag[_SUBJECT], "")), []).append((flag, keep))
    for (revision, part), members in groups.items():
        first = members[0][0]
        yield NewFlags(
            assertion,
            revision,
            first[_LEVEL],
            part,
            minute,
            len(members),
            sum(keep for _, keep in members),
            first[_SUBJECT],
        )


def _slices(connection: Connection, effects: Effects, flags: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Slice of each flagged record; records of earlier blocks are looked up."""
    wanted = {flag[_SUBJECT] for flag in flags}
    found = (
        {row[_RECORD_ID]: row[_SLICE] or "" for row in effects.records if row[_RECORD_ID] in wanted}
        if wanted
        else {}
    )
    missing = sorted(wanted - found.keys())
    for start in range(0, len(missing), 500):
        query = select(_RECORD.c.id, _RECORD.c.slice).where(
            _RECORD.c.model == effects.model, _RECORD.c.id.in_(missing[start : start + 500])
        )
        found.update((row.id, row.slice or "") for row in connection.execute(query))
    return found


def _count_records(connection: Connection, effects: Effects) -> None:
    tally: Tally[tuple[str, int]] = Tally()
    for row in effects.records:
        received = effects.received.get(row[_RECORD_SEQ], effects.received_us) or row[_RECORD_TS_US]
        tally[row[_SLICE] or "", minute_of(received)] += 1
    rows = [(effects.model, part, minute, count) for (part, minute), count in tally.items()]
    add_to_rows(connection, RecordCount, rows)


def _counted(
    connection: Connection, effects: Effects, groups: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Flags that are counted already, by assertion and minute."""
    assertions, minutes = {name for name, _ in groups}, {minute for _, minute in groups}
    if not assertions:
        return {}
    query = (
        select(_COUNT.c.assertion, _COUNT.c.minute_us, func.sum(_COUNT.c.flags).label("flags"))
        .where(
            _COUNT.c.model == effects.model,
            _COUNT.c.slot == effects.owner,
            _COUNT.c.assertion.in_(sorted(assertions)),
            _COUNT.c.minute_us.in_(sorted(minutes)),
        )
        .group_by(_COUNT.c.assertion, _COUNT.c.minute_us)
    )
    return {(row.assertion, row.minute_us): int(row.flags) for row in connection.execute(query)}


def minute_of(us: int) -> int:
    """Start of the minute, as ``flag_count.minute_us``."""
    return us - us % MINUTE_US
