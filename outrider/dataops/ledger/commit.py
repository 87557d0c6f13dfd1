"""Ledger: the worker's one transaction, all or nothing.

Answers, flags, labels, counters, sketches and the cursor.
"""

import json
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from outrider.dataops.state.rows import Row, insert_rows, replace_rows
from outrider.dataops.state.tables import (
    AdmissionRow,
    Answer,
    AssertionRow,
    ChampionBorder,
    Cursor,
    DeadLetter,
    Flag,
    FlagRecord,
    Label,
    LiveAnswer,
    LiveBudgetRow,
    Record,
    RotationRow,
    Sketch,
    Strike,
    WeakLabelRow,
    columns_of,
    table_of,
)

from . import entity_labels
from .backfill import CHAMPION
from .backfill import SLOT as BACKFILL
from .checkpoints import replace_checkpoints
from .counters import add_counts
from .cursors import cursor
from .sketches import SketchRow


@dataclass(frozen=True, slots=True)
class LiveVerdicts:
    """Verdicts of one live test on one version in a unit.

    The failure rate is estimated from these.

    Attributes
    ----------
    seq, failed, weight, keys
        Journal block, verdict, 1 / probability of having been asked, and id of each record, shape (n,).
    """

    test: str
    revision: str
    level: str
    tolerance: float
    confidence: float
    version: str
    seq: NDArray[np.int64]
    failed: NDArray[np.bool_]
    weight: NDArray[np.float64]
    keys: NDArray[np.object_]


class FlagRows(Protocol):
    """Flags with their members and weak labels, as tuples."""

    flags: list[Row]
    members: list[Row]
    weak_labels: list[Row]


@dataclass(slots=True)
class Effects:
    """Effects of one unit of work of one slot.

    Rows are tuples in the order of the columns below.
    """

    model: str
    slot: str
    seq: int
    records: list[Row] = field(default_factory=list)
    answers: list[Row] = field(default_factory=list)
    flags: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    weak_labels: list[Row] = field(default_factory=list)
    checkpoints: list[Row] = field(default_factory=list)
    border: tuple[int, str] | None = None
    """Block behind which another version is champion, and that version."""
    rotation: tuple[int, int] | None = None
    """Block behind which other entities are sampled, and when the first of these was received."""
    admission: tuple[float, int, int] | None = None
    """What sampling carries on: weight, begin and end of the period last sampled; None where unchanged."""
    live_answers: list[Row] = field(default_factory=list)
    live_verdicts: list[LiveVerdicts] = field(default_factory=list)
    live_budget: Mapping[str, Any] | None = None
    """State of the budget of live questions behind the unit; None where there is none."""
    labels: list[Row] = field(default_factory=list)
    dead_letters: list[Row] = field(default_factory=list)
    strikes: list[Row] = field(default_factory=list)
    suspended: dict[str, int] = field(default_factory=dict)
    sketches: list[SketchRow] = field(default_factory=list)
    counts: Tally[str] = field(default_factory=Tally)
    owner: str = ""
    """Slot whose answers the flags are about; the slot itself unless a judge's is meant."""
    received_us: int = 0
    """Receive time of the last block; 0 takes the time of each record instead."""
    received: Mapping[int, int] = field(default_factory=dict)
    """Receive time of each block."""
    live_rates: list[Any] = field(default_factory=list)
    """What the commit made of ``live_verdicts``: ``live_rates.follow`` returns it."""
    step_us: int = 0
    """How far the clock was set at the unit; 0 wherever it was not."""
    thinned: set[str] = field(default_factory=set)
    """Flags that are counted but not kept: ``storms.count_flags`` names them."""
    earlier_ids: dict[str, str] = field(default_factory=dict)
    """Ids under which earlier releases stored a challenger's events, by the ids that they have now."""

    def __post_init__(self) -> None:
        self.owner = self.owner or self.slot


RECORD = columns_of(Record)
FLAG = columns_of(Flag)
FLAG_RECORD = columns_of(FlagRecord)
WEAK_LABEL = columns_of(WeakLabelRow)
LABEL = columns_of(Label)
_FLAG_OF_WEAK = WEAK_LABEL.index("flag_id")


def _reader(columns: Sequence[str], names: str) -> Callable[[Row], tuple[Any, ...]]:
    return itemgetter(*map(columns.index, names.split()))


_JUDGEMENT = _reader(FLAG, "model version assertion revision record_id")
_CORRECTION = _reader(WEAK_LABEL, "record_id kind field element value")


def flag_id(
    model: str, version: str | None, assertion: str, revision: str, subject: str, *, slot: str = CHAMPION
) -> str:
    """Identity of a flag.

    Equal for the same judgement of the same subject, so a replay adds nothing.

    Parameters
    ----------
    slot
        Whose answer is judged. A canary's version serves and is a challenger at once: production's answers
        and its own are two judgements.
    """
    text = "\0".join((model, version or "", assertion, revision, subject))
    # The champion's are as they always were; those of challengers are digests of a family of their own.
    person = b"" if slot == CHAMPION else blake2b(slot.encode(), digest_size=16).digest()
    return blake2b(text.encode(), digest_size=16, person=person).hexdigest()


def own_flag_id(flag: Row, *, slot: str = CHAMPION) -> str:
    """Identity of a flag whose subject is its record, from its row."""
    return flag_id(*_JUDGEMENT(flag), slot=slot)


def weak_label_id(flag: str, record: str, kind: str, field: str, element: int, value: str) -> str:
    """Identity of a correction that a flag proposes for a record."""
    text = "\0".join((flag, record, kind, field, str(element), value))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def keep_stored_ids(
    connection: Connection, found: FlagRows, earlier_ids: Mapping[str, str], *, slot: str
) -> None:
    """Keep the stored ids of a challenger's flags.

    Where an earlier release stored them.

    Its ids said nothing of the slot; an event that it stored may be found again, and all by a replay.

    Parameters
    ----------
    found
        Whose ``flags``, ``members`` and ``weak_labels`` are changed.
    earlier_ids
        What earlier releases called flags, by what they are called now.
    """
    table, olds = table_of(Flag), sorted(earlier_ids.values())
    stored: set[str] = set()
    for start in range(0, len(olds), 500):
        query = select(table.c.id).where(table.c.id.in_(olds[start : start + 500]), table.c.slot == slot)
        stored.update(connection.execute(query).scalars())
    names = {new: old for new, old in earlier_ids.items() if old in stored}
    if not names:
        return
    found.flags = [(names.get(row[0], row[0]), *row[1:]) for row in found.flags]
    found.members = [(names.get(row[0], row[0]), *row[1:]) for row in found.members]
    of = _FLAG_OF_WEAK
    corrections = [(row, names.get(row[of])) for row in found.weak_labels]
    found.weak_labels = [
        row if flag is None else (weak_label_id(flag, *_CORRECTION(row)), *row[1:of], flag, *row[of + 1 :])
        for row, flag in corrections
    ]


def apply(connection: Connection, effects: Effects) -> None:
    """Write everything of ``effects`` and advance the cursor, inside the caller's transaction.

    Raises
    ------
    RuntimeError
        If the cursor is already at or beyond ``effects.seq``: another worker runs on this database.
    """
    model, slot = effects.model, effects.slot
    at = cursor(connection, model, slot)
    if at >= effects.seq:
        raise RuntimeError(
            f"cursor of {model}/{slot} is at {at}, cannot commit block {effects.seq} again; "
            "stop the other worker on this data folder"
        )
    insert_rows(connection, Record, effects.records)
    insert_rows(connection, Answer, effects.answers)
    _count_flagged(connection, effects)
    insert_rows(connection, Flag, _kept(effects, effects.flags, at=0))
    insert_rows(connection, FlagRecord, _kept(effects, effects.members, at=0))
    insert_rows(connection, WeakLabelRow, _kept(effects, effects.weak_labels, at=_FLAG_OF_WEAK))
    if effects.checkpoints:
        replace_checkpoints(connection, model, slot, effects.checkpoints)
    if effects.border is not None:
        insert_rows(connection, ChampionBorder, [(model, *effects.border)])
    if effects.rotation is not None:
        insert_rows(connection, RotationRow, [(model, *effects.rotation)])
    if effects.admission is not None:
        replace_rows(connection, AdmissionRow, [(model, *effects.admission)])
    insert_rows(connection, LiveAnswer, effects.live_answers)
    if effects.live_budget is not None:
        replace_rows(connection, LiveBudgetRow, [(model, slot, json.dumps(effects.live_budget))])
    insert_rows(connection, Label, effects.labels)
    entity_labels.resolve(
        connection,
        model,
        records=_of_entities(effects.records, RECORD),
        labels=_of_entities(effects.labels, LABEL),
    )
    insert_rows(connection, DeadLetter, effects.dead_letters)
    insert_rows(connection, Strike, effects.strikes)
    for name, until_us in effects.suspended.items():
        table = table_of(AssertionRow)
        connection.execute(
            table.update()
            .where(table.c.model == model, table.c.name == name)
            .values(suspended_until_us=until_us, suspension="")
        )
    sketches = [(model, slot, s.column, s.hour_us, s.rows, s.nulls, s.payload) for s in effects.sketches]
    replace_rows(connection, Sketch, sketches)
    # What was skipped and is judged later counts where it would have been judged.
    own = effects.owner if slot == BACKFILL else slot
    add_counts(connection, model, own, {n: c for n, c in effects.counts.items() if not _is_of_flags(n)})
    add_counts(connection, model, effects.owner, {n: c for n, c in effects.counts.items() if _is_of_flags(n)})
    replace_rows(connection, Cursor, [(model, slot, effects.seq)])


def _is_of_flags(count: str) -> bool:
    """True for a count of the slot whose answers are flagged."""
    return count == "flagged" or count.startswith(("flags:", "thinned:", "cost_ns:", "judged:", "live:"))


def _of_entities(rows: Iterable[Row], columns: Sequence[str]) -> Iterable[tuple[str, int]]:
    """Entity and time of the rows that have an entity."""
    entity, ts_us = columns.index("entity"), columns.index("ts_us")
    return ((row[entity], row[ts_us]) for row in rows if row[entity] is not None)


def _kept(effects: Effects, rows: Iterable[Row], *, at: int) -> Iterable[Row]:
    """Rows whose flag, named in column ``at``, a storm has not thinned out."""
    return (row for row in rows if row[at] not in effects.thinned) if effects.thinned else rows


def _count_flagged(connection: Connection, effects: Effects) -> None:
    """Count the records that get their first flag; a window may judge records of earlier blocks."""
    ids = list({flag[FLAG.index("record_id")] for flag in effects.flags})
    table = table_of(Flag)
    known: set[str] = set()
    for start in range(0, len(ids), 500):
        query = select(table.c.record_id).where(
            table.c.model == effects.model,
            table.c.slot == effects.owner,
            table.c.record_id.in_(ids[start : start + 500]),
        )
        known.update(connection.execute(query).scalars())
    effects.counts["flagged"] += len(ids) - len(known)


def live_budget(connection: Connection, model: str, slot: str) -> dict[str, Any] | None:
    """Budgets of live questions at a slot's cursor."""
    table = table_of(LiveBudgetRow)
    query = select(table.c.state).where(table.c.model == model, table.c.slot == slot)
    state: dict[str, Any] | None = connection.execute(query).scalar()
    return state
