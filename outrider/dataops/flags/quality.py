"""Bounded figures of assertions from flags, labels, reviews and counts, all of the champion's slot and the
active revision."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, and_, case, exists, func, literal, select, union_all

from outrider.assertions.comparison.matching import matches
from outrider.assertions.comparison.typed_text import read_typed
from outrider.assertions.flags.quality import (
    Asked,
    Detection,
    Judged,
    KnownError,
    LeadTime,
    Overlap,
    Rate,
    SuspensionRule,
    detect,
    lead_time,
    overlaps,
    rate_of_labels,
    reasons_to_suspend,
)
from outrider.dataops.labels.estimates import request_weights
from outrider.dataops.labels.withdrawn import decides
from outrider.dataops.ledger.champions import read_borders, version_at
from outrider.dataops.ledger.counters import read_counts
from outrider.dataops.ledger.cube import FLAGS, RECORDS, flags_of
from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.ledger.targets import is_number
from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.tables import (
    AssertionRow,
    Flag,
    FlagRecord,
    Record,
    Review,
    Strike,
    table_of,
)
from outrider.errors import NotFound

CHAMPION = "champion"
RECENT_LABELS = 5_000
RECENT_FLAGS = 20_000
RECENT_US = 86_400_000_000
EPISODE_QUIET_S = 900.0
FOREVER_US = 253_402_300_799_000_000
"""Last second of the year 9999: a suspension without an end."""
_CHUNK = 500
_ASSERTION, _FLAG, _MEMBER, _RECORD = (table_of(t) for t in (AssertionRow, Flag, FlagRecord, Record))
_LABEL, _REVIEW, _STRIKE = (table_of(t) for t in (Label, Review, Strike))


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionFacts:
    """Facts of one assertion or live test."""

    name: str
    kind: str
    level: str
    description: str
    owner: str
    revision: str
    precision: Rate
    """P(model wrong | fired), over flags of the active revision that were reviewed or labelled."""
    cost_us: float | None
    """Microseconds per record, all revisions; None before the first."""
    suspended_until_us: int
    suspension: str
    """Why a person suspended it; empty when its strikes did."""
    last_strike: str | None
    proposal: tuple[str, ...]
    """Why it should be suspended; empty when nothing speaks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionQuality(AssertionFacts):
    """Quality of one assertion or live test."""

    flags: int
    """Of all revisions, since the beginning."""
    reads: tuple[str, ...]
    """Columns that it was seen to read; ``inputs.*`` is a whole part, ``*`` whole records."""
    fire_rate: Rate
    """Flags per record of the last day of traffic."""
    reviewed: int
    by_slice: Mapping[str, Rate]
    """Precision per slice."""
    detection: Detection
    lead: LeadTime


@dataclass(frozen=True, slots=True)
class LabelledRecord:
    id: str
    wrong: bool
    slice: str | None
    version: str | None
    """As counted: production's, else the champion's of that time; None where there was none."""
    seq: int
    ts_us: int
    received_us: int
    asked: Asked | None
    """None where no one asked for the label, or with an unknown probability."""


@dataclass(frozen=True, slots=True)
class Labelled:
    records: Sequence[LabelledRecord]
    is_all: bool
    is_numeric: bool

    @property
    def judged(self) -> Sequence[LabelledRecord]:
        return () if self.is_numeric else self.records


@dataclass(slots=True)
class _Known:
    outcomes: dict[str, bool] = field(default_factory=dict)
    slices: dict[str, str] = field(default_factory=dict)
    records: set[str] = field(default_factory=set)
    asked: dict[str, Asked] = field(default_factory=dict)
    """By flag of one record: how its label was chosen."""

    def precision(self, part: str | None = None) -> Rate:
        flags = [flag for flag in self.outcomes if part is None or self.slices.get(flag, "") == part]
        return rate_of_labels(
            [self.outcomes[flag] for flag in flags], [self.asked.get(flag) for flag in flags]
        )

    reviewed: int = 0


def labelled_records(connection: Connection, model: str) -> Labelled:
    mine = select(_LABEL).where(_LABEL.c.model == model, decides(_LABEL))
    newest = mine.order_by(_LABEL.c.seq.desc(), _LABEL.c.row.desc()).limit(RECENT_LABELS).subquery()
    rank = func.row_number().over(
        partition_by=newest.c.record_id, order_by=(newest.c.seq.desc(), newest.c.row.desc())
    )
    latest = select(newest, rank.label("rank")).subquery()
    rows = connection.execute(
        select(
            latest.c.value,
            _RECORD.c.predicted,
            _RECORD.c.id,
            _RECORD.c.slice,
            # A version that production claims and did not answer as is not what was right or wrong.
            case((_RECORD.c.by_replica, None), (_RECORD.c.is_unnamed, OTHERS), else_=_RECORD.c.version).label(
                "version"
            ),
            _RECORD.c.seq,
            _RECORD.c.ts_us,
            latest.c.received_us,
        )
        .join(_RECORD, and_(_RECORD.c.model == latest.c.model, _RECORD.c.id == latest.c.record_id))
        .where(latest.c.rank == 1, latest.c.value.is_not(None), _RECORD.c.predicted.is_not(None))
    ).all()
    beyond = select(literal(1)).where(_LABEL.c.model == model).offset(RECENT_LABELS).limit(1)
    asked = request_weights(connection, model)
    borders = read_borders(connection, model)
    answers = [read_typed(row.predicted) for row in rows]
    right = matches(answers, [read_typed(row.value) for row in rows]).tolist()
    return Labelled(
        records=[
            LabelledRecord(
                id=row.id,
                wrong=not is_right,
                slice=row.slice,
                version=version_at(borders, row.seq) if row.version is None else row.version,
                seq=row.seq,
                ts_us=row.ts_us,
                received_us=row.received_us,
                asked=asked.get(row.id),
            )
            for is_right, row in zip(right, rows, strict=True)
        ],
        is_all=connection.execute(beyond).first() is None,
        is_numeric=is_number(connection, model, answers),
    )


def precisions(connection: Connection, model: str, labelled: Sequence[LabelledRecord]) -> dict[str, Rate]:
    known = _known(connection, model, labelled, _active(connection, model))
    return {name: found.precision() for name, found in known.items()}


def read_quality(
    connection: Connection, model: str, name: str, *, now_us: int, rule: SuspensionRule
) -> AssertionQuality:
    """All figures of one active assertion or live test.

    Raises
    ------
    NotFound
        If none of that name is active.
    """
    row = _active(connection, model).get(name)
    if row is None:
        raise NotFound(f"model {model!r} has no assertion {name!r}; `outrider assertions` lists them")
    labelled = labelled_records(connection, model).judged
    said = _known(connection, model, labelled, {name: row})[name]
    errors: dict[str, list[KnownError]] = {}
    for one in labelled:
        if one.wrong:
            errors.setdefault(one.slice or "", []).append(KnownError(one.ts_us, one.received_us))
    counts = read_counts(connection, model, CHAMPION)
    precision = said.precision()
    fire_rate = _fire_rates(connection, model, [row], counts)[name]
    rests = row.suspended_until_us > now_us
    return AssertionQuality(
        name=name,
        kind=row.kind,
        level=row.level,
        description=row.description,
        owner=row.owner,
        revision=row.revision,
        flags=counts.get(f"flags:{name}", 0),
        reads=tuple(json.loads(row.reads)),
        fire_rate=fire_rate,
        precision=precision,
        reviewed=said.reviewed,
        by_slice=_by_slice(said),
        detection=detect(_judged(connection, model, row, labelled, said)),
        lead=lead_time(_flag_times(connection, model, row), errors, quiet_s=EPISODE_QUIET_S),
        cost_us=cost_us(counts, name),
        suspended_until_us=row.suspended_until_us if rests else 0,
        suspension=row.suspension if rests else "",
        last_strike=last_strikes(connection, model).get(name),
        proposal=() if rests else reasons_to_suspend(fire_rate, precision, rule),
    )


def cost_us(counts: Mapping[str, int], name: str) -> float | None:
    judged = counts.get(f"judged:{name}", 0)
    return counts.get(f"cost_ns:{name}", 0) / judged / 1000 if judged else None


def read_proposals(
    connection: Connection,
    model: str,
    precision: Mapping[str, Rate],
    *,
    now_us: int,
    rule: SuspensionRule,
) -> dict[str, tuple[str, ...]]:
    judging = [row for row in _active(connection, model).values() if row.suspended_until_us <= now_us]
    rates = _fire_rates(connection, model, judging, read_counts(connection, model, CHAMPION))
    found = {
        name: reasons_to_suspend(rate, precision.get(name, Rate(0, 0)), rule) for name, rate in rates.items()
    }
    return {name: reasons for name, reasons in found.items() if reasons}


def read_overlaps(connection: Connection, model: str) -> list[Overlap]:
    active = _active(connection, model)
    newest = connection.execute(
        select(_FLAG.c.assertion, _FLAG.c.revision, _FLAG.c.record_id, _FLAG.c.slot)
        .where(_FLAG.c.model == model)
        .order_by(_FLAG.c.seq.desc(), _FLAG.c.row.desc())
        .limit(RECENT_FLAGS)
    )
    fired: dict[str, set[str]] = {}
    for row in newest:
        one = active.get(row.assertion)
        if row.slot == CHAMPION and one is not None and one.revision == row.revision:
            fired.setdefault(row.assertion, set()).add(row.record_id)
    return overlaps(fired)


def active_revisions(engine: Engine, model: str) -> dict[str, str]:
    with engine.connect() as connection:
        return {name: row.revision for name, row in _active(connection, model).items()}


def last_strikes(connection: Connection, model: str) -> dict[str, str]:
    mine = select(_STRIKE).where(_STRIKE.c.model == model)
    newest = mine.order_by(_STRIKE.c.id.desc()).limit(1000).subquery()
    rows = connection.execute(select(newest).order_by(newest.c.id))
    return {row.assertion: f"{row.reason}: {row.detail}" if row.detail else row.reason for row in rows}


def suspend(connection: Connection, model: str, name: str, *, until_us: int, reason: str) -> None:
    """Suspend an assertion in every slot, until a time or revision.

    Raises
    ------
    NotFound
        If none of that name is active.
    """
    _set_suspension(connection, model, name, until_us=until_us, reason=reason or "by hand")


def resume(connection: Connection, model: str, name: str, *, now_us: int) -> None:
    """Resume a suspended assertion; its suspended time stays known, because its share is judged from
    now on."""
    _set_suspension(connection, model, name, until_us=now_us, reason="")


def _set_suspension(connection: Connection, model: str, name: str, *, until_us: int, reason: str) -> None:
    changed = connection.execute(
        _ASSERTION.update()
        .where(_ASSERTION.c.model == model, _ASSERTION.c.name == name, _ASSERTION.c.active)
        .values(suspended_until_us=until_us, suspension=reason)
    )
    if not changed.rowcount:
        raise NotFound(f"model {model!r} has no assertion {name!r}; `outrider assertions` lists them")


def _active(connection: Connection, model: str) -> dict[str, Any]:
    query = select(_ASSERTION).where(_ASSERTION.c.model == model, _ASSERTION.c.active)
    return {row.name: row for row in connection.execute(query)}


def _known(
    connection: Connection, model: str, labelled: Sequence[LabelledRecord], active: Mapping[str, Any]
) -> dict[str, _Known]:
    """Outcome of every flag with a labelled record or a review, which outweighs labels."""
    found = {name: _Known() for name in active}
    truth = {row.id: row for row in labelled}
    for flag in _flags_of(connection, model, list(truth)):
        if (one := active.get(flag.assertion)) is None or one.revision != flag.revision:
            continue
        said, of = found[flag.assertion], truth[flag.record_id]
        said.records.add(flag.record_id)
        # An event is right when the model was wrong on any of its records.
        said.outcomes[flag.id] = said.outcomes.get(flag.id, False) or of.wrong
        said.slices.setdefault(flag.id, of.slice or "")
        # What an event's chance of a label was no single record tells.
        if of.asked is not None and not flag.has_members:
            said.asked[flag.id] = of.asked
    reviews = connection.execute(
        select(_FLAG.c.id, _FLAG.c.assertion, _FLAG.c.revision, _REVIEW.c.is_error, _RECORD.c.slice)
        .join(_FLAG, _FLAG.c.id == _REVIEW.c.flag_id)
        .outerjoin(_RECORD, and_(_RECORD.c.model == _FLAG.c.model, _RECORD.c.id == _FLAG.c.record_id))
        .where(_REVIEW.c.model == model, _FLAG.c.slot == CHAMPION)
    )
    for row in reviews:
        if (one := active.get(row.assertion)) is not None and one.revision == row.revision:
            said = found[row.assertion]
            said.outcomes[row.id] = row.is_error
            said.slices[row.id] = row.slice or ""
            said.reviewed += 1
    return found


def _flags_of(connection: Connection, model: str, ids: Sequence[str]) -> Iterator[Any]:
    columns = (_FLAG.c.id, _FLAG.c.assertion, _FLAG.c.revision)
    for start in range(0, len(ids), _CHUNK):
        part = ids[start : start + _CHUNK]
        mine = _FLAG.c.model == model, _FLAG.c.slot == CHAMPION
        has_members = exists().where(_MEMBER.c.flag_id == _FLAG.c.id).label("has_members")
        at = select(*columns, _FLAG.c.record_id, has_members).where(*mine, _FLAG.c.record_id.in_(part))
        among = (
            select(*columns, _MEMBER.c.record_id, literal(True).label("has_members"))
            .join(_FLAG, _FLAG.c.id == _MEMBER.c.flag_id)
            .where(*mine, _MEMBER.c.model == model, _MEMBER.c.record_id.in_(part))
        )
        yield from connection.execute(union_all(at, among))


def _judged(
    connection: Connection, model: str, row: Any, labelled: Sequence[LabelledRecord], said: _Known
) -> list[Judged]:
    """Labelled records that this revision has judged; in a storm an absent flag says nothing."""
    stormy = set(
        connection.scalars(
            FLAGS.query(model, "minute_us", of=flags_of(row.name)).where(
                FLAGS.table.c.kept < FLAGS.table.c.flags
            )
        )
    )
    return [
        Judged(one.id, one.wrong, one.slice or "", one.id in said.records, one.asked)
        for one in labelled
        if one.seq > row.first_seq and (one.id in said.records or minute_of(one.ts_us) not in stormy)
    ]


def _by_slice(said: _Known) -> dict[str, Rate]:
    parts = {said.slices.get(flag, "") for flag in said.outcomes}
    return {part: said.precision(part) for part in sorted(parts)}


def _flag_times(connection: Connection, model: str, row: Any) -> dict[str, list[int]]:
    newest = (
        select(_FLAG.c.record_id, _FLAG.c.ts_us, _FLAG.c.slot, _FLAG.c.revision)
        .where(_FLAG.c.model == model, _FLAG.c.assertion == row.name)
        .order_by(_FLAG.c.seq.desc())
        .limit(RECENT_FLAGS)
        .subquery()
    )
    times: dict[str, list[int]] = {}
    for flag in connection.execute(
        select(newest.c.ts_us, _RECORD.c.slice)
        .join(_RECORD, and_(_RECORD.c.model == model, _RECORD.c.id == newest.c.record_id))
        .where(newest.c.slot == CHAMPION, newest.c.revision == row.revision)
    ):
        times.setdefault(flag.slice or "", []).append(flag.ts_us)
    return times


def _fire_rates(
    connection: Connection, model: str, rows: Sequence[Any], counts: Mapping[str, int]
) -> dict[str, Rate]:
    """Flags per record in the last day of traffic, since each revision came; else of all time."""
    newest = RECORDS.last(connection, model)
    if newest is None:  # judged before counts were kept by the minute
        judged = counts.get("records", 0)
        return {row.name: Rate(min(counts.get(f"flags:{row.name}", 0), judged), judged) for row in rows}
    records: dict[int, int] = {}
    rates = {}
    for row in rows:
        since = newest - RECENT_US
        if row.first_seq:  # the minute in which it came is partly another revision's
            since = max(since, minute_of(row.first_seen_us) + MINUTE_US)
        if since not in records:
            query = RECORDS.query(model, sums=("records",), since_us=since)
            records[since] = int(connection.scalar(query) or 0)
        own = flags_of(row.name, revision=row.revision)
        flags = connection.scalar(FLAGS.query(model, sums=("flags",), since_us=since, of=own))
        rates[row.name] = Rate(min(int(flags or 0), records[since]), records[since])
    return rates
