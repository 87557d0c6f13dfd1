"""The worker's one transaction: answers, flags, labels, counters, profiles, cursor."""

import json
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.rows import Row, TableColumns, add_to_rows, among, insert_rows, replace_rows
from outrider.dataops.state.series_tables import GroupCount, MeasureCount
from outrider.dataops.state.tables import (
    AdmissionRow,
    Answer,
    AssertionRow,
    ChampionBorder,
    Cursor,
    DeadLetter,
    Flag,
    FlagRecord,
    LiveAnswer,
    LiveBudgetRow,
    Record,
    RotationRow,
    Strike,
    WeakLabelRow,
    table_of,
)

from . import entity_labels, outcomes
from .backfill import CHAMPION
from .backfill import SLOT as BACKFILL
from .checkpoints import replace_checkpoints
from .counters import FLAGS_OF, add_counts
from .cursors import cursor
from .first_seen import note_first_seen
from .flag_marks import Marks, store_marks
from .groups import answer_rows
from .minutes import minute_of, note_minutes
from .profiles import LayoutRow, ProfileRow
from .stated_values import OTHERS
from .stored_profiles import insert_layouts, insert_profiles

_LABEL = table_of(Label)
_OTHER_LABEL = "another label with its key was accepted before, and stands; give each label a key of its own"


@dataclass(frozen=True, slots=True)
class LiveVerdicts:
    """Verdicts of a live test in a unit, for failure rates."""

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
    """``seq``, ``failed``, ``weight`` and ``keys``: journal block, verdict, 1 / probability of having been
    asked, and id of each record, shape (n,)."""


@dataclass(slots=True, kw_only=True)
class FlagRows:
    """Flags with their members and weak labels."""

    flags: TableColumns = field(default_factory=partial(TableColumns, Flag))
    members: TableColumns = field(default_factory=partial(TableColumns, FlagRecord))
    weak_labels: TableColumns = field(default_factory=partial(TableColumns, WeakLabelRow))

    def extend_flags(self, other: "FlagRows") -> None:
        """Add the flags of another, with their members and weak labels."""
        self.flags.extend(other.flags)
        self.members.extend(other.members)
        self.weak_labels.extend(other.weak_labels)


@dataclass(slots=True)
class Effects(FlagRows):
    """Effects of one unit of work of one slot."""

    model: str
    slot: str
    seq: int
    records: TableColumns = field(default_factory=partial(TableColumns, Record))
    answers: list[Row] = field(default_factory=list)
    checkpoints: list[Row] = field(default_factory=list)
    border: tuple[int, str] | None = None
    """Block behind which another version is champion, and that version."""
    rotation: tuple[int, int] | None = None
    """Block behind which other entities are sampled, and when the first of these was received."""
    admission: tuple[float, int, int] | None = None
    """What sampling carries on: weight, begin and end of the period last sampled; None where unchanged."""
    live_answers: TableColumns = field(default_factory=partial(TableColumns, LiveAnswer))
    live_verdicts: list[LiveVerdicts] = field(default_factory=list)
    live_budget: Mapping[str, Any] | None = None
    """State of the budget of live questions behind the unit; None where there is none."""
    labels: TableColumns = field(default_factory=partial(TableColumns, Label))
    dead_letters: TableColumns = field(default_factory=partial(TableColumns, DeadLetter))
    strikes: TableColumns = field(default_factory=partial(TableColumns, Strike))
    suspended: dict[str, int] = field(default_factory=dict)
    profiles: list[ProfileRow] = field(default_factory=list)
    layouts: list[LayoutRow] = field(default_factory=list)
    counts: Tally[str] = field(default_factory=Tally)
    first_seen: list[Row] = field(default_factory=list)
    """Rows of ``first_seen``."""
    ran: set[str] = field(default_factory=set)
    """Assertions that gave verdicts."""
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
    """Flags that are counted but not kept: ``rate_limit.count_flags`` names them."""
    new_flags: list[int] = field(default_factory=list)
    """Rows of ``flags`` that no earlier unit found: ``rate_limit.count_flags`` names them."""
    marks: dict[tuple[str, int], Marks] = field(default_factory=dict)
    """Marks of the answered records, by judged version as counted and block."""
    version: str | None = None
    """Version of the replica that answered; None without one."""
    measures: list[Row] = field(default_factory=list)
    """Rows of ``measure_count``."""
    reads: dict[str, Sequence[str]] = field(default_factory=dict)
    """Columns that assertions were seen to read, where that is news."""
    classes: Sequence[str] = ()
    """Words of the model's declared classes, in the order in which answers score them."""
    stated_versions: list[str | None] = field(default_factory=list)
    """Version that each record states, as counts name it; None for none."""

    def __post_init__(self) -> None:
        self.owner = self.owner or self.slot

    @property
    def judged_versions(self) -> list[str]:
        """Judged version per record as counted: production's, else the replica's, else empty."""
        return [
            OTHERS if is_unnamed else (self.version if stated is None or by_replica else stated) or ""
            for stated, by_replica, is_unnamed in self.records.select("version", "by_replica", "is_unnamed")
        ]

    @property
    def minutes(self) -> list[int]:
        """Minute of receipt per record."""
        return [
            minute_of(self.received.get(seq, self.received_us) or ts_us)
            for seq, ts_us in self.records.select("seq", "ts_us")
        ]


def flag_id(
    model: str, version: str | None, assertion: str, revision: str, subject: str, *, slot: str = CHAMPION
) -> str:
    """Identity of a flag, equal for equal judgements: replays add nothing.

    Parameters
    ----------
    slot
        Whose answer is judged. A canary's version serves and is a challenger at once: production's answers
        and its own are two judgements.
    """
    text = "\0".join((model, version or "", assertion, revision, subject))
    person = b"" if slot == CHAMPION else blake2b(slot.encode(), digest_size=16).digest()
    return blake2b(text.encode(), digest_size=16, person=person).hexdigest()


def own_flag_ids(flags: TableColumns, *, slot: str = CHAMPION) -> list[str]:
    """Identities of flags as if the subject of each were its record."""
    judgements = flags.select("model", "version", "assertion", "revision", "record_id")
    return [flag_id(*judgement, slot=slot) for judgement in judgements]


def weak_label_id(flag: str, record: str, kind: str, field: str, element: int, value: str) -> str:
    """Identity of a correction that a flag proposes for a record."""
    text = "\0".join((flag, record, kind, field, str(element), value))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _leave_repeated_labels(connection: Connection, effects: Effects) -> None:
    """Leave out labels whose key is stored already; one that says something else is a dead letter."""
    keys = effects.labels["key"]
    named = sorted({key for key in keys if key is not None})
    if not named:
        return
    columns = _LABEL.c.key, _LABEL.c.entity, _LABEL.c.record_id, _LABEL.c.label
    query = select(*columns).where(_LABEL.c.model == effects.model, among(_LABEL.c.key, named))
    known: dict[str, tuple[str, dict[str, Any]]] = {
        row.key: (row.entity or row.record_id, row.label) for row in connection.execute(query)
    }
    is_new = []
    names = "key", "entity", "record_id", "label", "seq", "row", "received_us"
    for key, entity, record_id, label, seq, row, at_us in effects.labels.select(*names):
        is_new.append(key is None or key not in known)
        if key is None:
            continue
        told = entity or record_id, json.loads(label)
        if known.setdefault(key, told) != told:
            letter = {"seq": seq, "row": row, "model": effects.model, "record_id": record_id, "at_us": at_us}
            effects.dead_letters.add(1, letter | {"reason": "conflict", "detail": _OTHER_LABEL})
    effects.counts["labels"] -= is_new.count(False)
    effects.labels = effects.labels.where(is_new)


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
    _leave_repeated_labels(connection, effects)
    since = entity_labels.concerned(
        connection,
        model,
        records=_of_entities(effects.records),
        labels=_of_entities(effects.labels),
    )
    labelled = outcomes.affected(
        connection, model, labels=effects.labels["record_id"], records=effects.records["id"]
    )
    labelled += outcomes.labelled_entities(connection, model, since)
    labelled += entity_labels.latest_records(connection, model, _of_entities(effects.labels))
    before = outcomes.standing(connection, model, dict.fromkeys(labelled))
    if effects.records:
        note_minutes(connection, model, effects.received)
    insert_rows(connection, Record, effects.records.rows())
    insert_rows(connection, Answer, effects.answers)
    _count_flagged(connection, effects)
    insert_rows(connection, Flag, _kept(effects, effects.flags, "id"))
    insert_rows(connection, FlagRecord, _kept(effects, effects.members, "flag_id"))
    insert_rows(connection, WeakLabelRow, _kept(effects, effects.weak_labels, "flag_id"))
    if slot == effects.owner:  # judges and the backfill have no challenger beside them
        store_marks(connection, model, slot, effects.marks, _of_both(effects))
    if effects.checkpoints:
        replace_checkpoints(connection, model, slot, effects.checkpoints)
    if effects.border is not None:
        insert_rows(connection, ChampionBorder, [(model, *effects.border)])
    if effects.rotation is not None:
        insert_rows(connection, RotationRow, [(model, *effects.rotation)])
    if effects.admission is not None:
        replace_rows(connection, AdmissionRow, [(model, *effects.admission)])
    insert_rows(connection, LiveAnswer, effects.live_answers.rows())
    if effects.live_budget is not None:
        replace_rows(connection, LiveBudgetRow, [(model, slot, json.dumps(effects.live_budget))])
    insert_rows(connection, Label, effects.labels.rows())
    entity_labels.resolve(connection, model, since)
    labelled += outcomes.labelled_entities(connection, model, since)
    after = outcomes.standing(connection, model, dict.fromkeys(labelled))
    outcomes.count_changes(
        connection,
        model,
        before,
        after,
        classes=effects.classes,
        received=effects.received,
    )
    add_to_rows(connection, MeasureCount, effects.measures)
    note_first_seen(connection, effects.first_seen)
    insert_rows(connection, DeadLetter, effects.dead_letters.rows())
    insert_rows(connection, Strike, effects.strikes.rows())
    for name, until_us in effects.suspended.items():
        suspend(connection, model, name, until_us)
    insert_layouts(connection, model, effects.layouts)
    insert_profiles(connection, model, effects.profiles)
    # What was skipped and is judged later counts where it would have been judged.
    own = effects.owner if slot == BACKFILL else slot
    add_counts(connection, model, own, {n: c for n, c in effects.counts.items() if not _is_of_flags(n)})
    add_counts(connection, model, effects.owner, {n: c for n, c in effects.counts.items() if _is_of_flags(n)})
    replace_rows(connection, Cursor, [(model, slot, effects.seq)])


def count_groups(connection: Connection, effects: Effects, is_first: Callable[[int, str, str], bool]) -> None:
    """Count the records of a unit by declared group.

    Parameters
    ----------
    is_first
        As of :func:`outrider.dataops.ledger.groups.answer_rows`.
    """
    if any(effects.records["groups"]):
        rows = answer_rows(
            effects.model,
            effects.records.select("groups", "predicted", "is_other_class", "entity", "weight"),
            versions=effects.judged_versions,
            minutes=effects.minutes,
            is_first=is_first,
        )
        add_to_rows(connection, GroupCount, rows)


def suspend(connection: Connection, model: str, assertion: str, until_us: int) -> None:
    """Suspend an assertion for its strikes."""
    table = table_of(AssertionRow)
    connection.execute(
        table.update()
        .where(table.c.model == model, table.c.name == assertion)
        .values(suspended_until_us=until_us, suspension="")
    )


def _is_of_flags(count: str) -> bool:
    """True for a count of the slot whose answers are flagged."""
    return count == "flagged" or count.startswith(
        ("flags:", "thinned:", "cost_ns:", "judged:", "live:", FLAGS_OF)
    )


def _of_entities(found: TableColumns) -> Iterable[tuple[str, int]]:
    """Entity and time of the rows that have an entity."""
    return ((entity, ts_us) for entity, ts_us in found.select("entity", "ts_us") if entity is not None)


def _kept(effects: Effects, found: TableColumns, name: str) -> Iterable[Row]:
    """Rows whose flag, named in a column, a storm has not thinned out."""
    thinned = effects.thinned
    return found.where(flag not in thinned for flag in found[name]).rows() if thinned else found.rows()


def _of_both(effects: Effects) -> Iterable[tuple[str | None, int, int, str]]:
    """Version, block, row and level of new flags; live tests ask the champion alone."""
    asked = {verdicts.test for verdicts in effects.live_verdicts}
    columns = [effects.flags[name] for name in ("version", "seq", "row", "level")]
    assertions = effects.flags["assertion"]
    return (
        (columns[0][at], columns[1][at], columns[2][at], columns[3][at])
        for at in effects.new_flags
        if assertions[at] not in asked
    )


def _count_flagged(connection: Connection, effects: Effects) -> None:
    """Count the records that get their first flag; a window may judge records of earlier blocks."""
    ids = set(effects.flags["record_id"])
    table = table_of(Flag)
    own = table.c.model == effects.model, table.c.slot == effects.owner, among(table.c.record_id, ids)
    known = connection.scalars(select(table.c.record_id).where(*own).distinct()).all() if ids else ()
    effects.counts["flagged"] += len(ids) - len(known)


def live_budget(connection: Connection, model: str, slot: str) -> dict[str, Any] | None:
    """Budgets of live questions at a slot's cursor."""
    table = table_of(LiveBudgetRow)
    query = select(table.c.state).where(table.c.model == model, table.c.slot == slot)
    state: dict[str, Any] | None = connection.execute(query).scalar()
    return state
