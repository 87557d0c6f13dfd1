"""Outcomes of labels per minute, exact as labels come and change.

Around each transaction that may change which label a record has, its outcome before is taken off and that
behind it put on. A record whose row has expired keeps the outcome that it had.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from sqlalchemy import Connection

from outrider.assertions.comparison.matching import matches
from outrider.assertions.comparison.typed_text import read_typed
from outrider.dataops.state.rows import Row, add_to_rows
from outrider.dataops.state.series_tables import GroupCount, MeasureCount, OutcomeCount, ScoreCount

from .champions import read_borders, version_at
from .class_scores import score_rows
from .class_words import NUMBER, class_word
from .cube import LABELLED, Floats, distinct, summed
from .groups import label_rows
from .losses import FirstOutcome, count_losses
from .measures import RecordKeys, measure_rows
from .minutes import MINUTE_US, minute_of, minutes_of
from .stated_values import OTHERS
from .targets import declared_number

CONFIDENCES = 50
"""Buckets of [0, 1]."""
SCALE = 10_000
"""Of ``record.confidence``."""
_CHUNK = 500
_STANDING = (
    "SELECT r.id, r.seq, r.ts_us, r.version, r.by_replica, r.slice, r.predicted, r.confidence, r.weight,"
    " r.groups, r.class_scores, r.entity, r.is_unnamed, l.value, l.received_us, r.is_other_class,"
    " l.is_other_class AS is_other_label FROM label l"
    " JOIN record r ON r.model = l.model AND r.id = l.record_id"
    " WHERE l.model = ? AND l.record_id IN ({marks}) AND r.predicted IS NOT NULL"
    " AND (l.value IS NOT NULL OR l.label = '{{}}') ORDER BY l.seq, l.row"
)


class LabelledRow(NamedTuple):
    """Record with the label that counts."""

    id: str
    seq: int
    ts_us: int
    version: str | None
    by_replica: bool | None
    slice: str | None
    predicted: str
    confidence: int | None
    weight: float
    groups: str | None
    class_scores: bytes | None
    entity: str | None
    is_unnamed: bool | None
    value: str
    """Null where it was withdrawn, as rows are read."""
    received_us: int
    is_other_class: bool | None = None
    is_other_label: bool | None = None


T = TypeVar("T")
Standing = dict[str, LabelledRow]
"""By record."""


@dataclass(frozen=True, slots=True)
class LabelOutcome:
    """Answer to a labelled record, as counted."""

    predicted: str
    label: str
    hit: bool
    error: float
    """Answer minus label; nan where they are no numbers to be near."""


def outcomes_of(rows: Sequence[LabelledRow], is_number: bool | None = None) -> list[LabelOutcome]:
    """Outcomes of labelled records.

    Answers and labels keep the names that counts gave them at receipt.

    Parameters
    ----------
    is_number
        Declared kind of the target; None where each answer says it.
    """
    told = [(row.predicted, row.value, bool(row.is_other_class), bool(row.is_other_label)) for row in rows]
    distinct = list(dict.fromkeys(told))
    values = [(read_typed(answer), read_typed(label)) for answer, label, *_ in distinct]
    hits = matches([one for one, _ in values], [one for _, one in values]).tolist()
    found: dict[tuple[str, str, bool, bool], LabelOutcome] = {}
    for key, (answer, label), hit in zip(distinct, values, hits, strict=True):
        own, other = _name(key[0], key[2], is_number), _name(key[1], key[3], is_number)
        error = float("nan")
        if is_number is not False and isinstance(answer, int | float if is_number else float):
            error = float(answer - label) if isinstance(label, int | float) else error
        found[key] = LabelOutcome(own, own if hit else other, hit, error)
    return [found[key] for key in told]


def _name(text: str, is_other: bool, is_number: bool | None) -> str:
    """Name by which an answer or label is counted; fractional ones of declared classes have none."""
    word = class_word(text, is_number=is_number is True)
    if word == NUMBER:
        return OTHERS if is_number is False else NUMBER
    return OTHERS if is_other else word


def affected(
    connection: Connection, model: str, *, labels: Iterable[str], records: Sequence[str]
) -> list[str]:
    """Records whose label a transaction may change, new ones too.

    Parameters
    ----------
    labels
        Records that new labels name.
    records
        New records; those count for which a label waits.
    """
    ids = dict.fromkeys(one for one in labels if one)
    some = "SELECT 1 FROM label WHERE model = ? LIMIT 1"
    if connection.exec_driver_sql(some, (model,)).first() is not None:
        for part, marks in _parts(records):
            waiting = f"SELECT DISTINCT record_id FROM label WHERE model = ? AND record_id IN ({marks})"
            ids |= dict.fromkeys(connection.exec_driver_sql(waiting, (model, *part)).scalars().all())
    return list(ids)


def _parts(ids: Sequence[T]) -> Iterator[tuple[Sequence[T], str]]:
    """Ids or times in parts, each with its places in a query."""
    for start in range(0, len(ids), _CHUNK):
        part = ids[start : start + _CHUNK]
        yield part, ", ".join("?" * len(part))


def labelled_entities(connection: Connection, model: str, since: Mapping[str, int]) -> list[str]:
    """Records with labels of entities, from a time of each on."""
    query = "SELECT record_id FROM label WHERE model = ? AND entity = ? AND ts_us >= ? AND record_id != ''"
    return [
        row.record_id
        for entity, ts_us in since.items()
        for row in connection.exec_driver_sql(query, (model, entity, ts_us))
    ]


def standing(connection: Connection, model: str, ids: Iterable[str]) -> Standing:
    """Labelled ones of records, with the label that counts now."""
    found: Standing = {}
    for part, marks in _parts(list(ids)):
        rows = connection.exec_driver_sql(_STANDING.format(marks=marks), (model, *part)).all()
        found |= {row.id: row for row in map(LabelledRow._make, rows)}
    return {key: row for key, row in found.items() if row.value is not None}


def count_changes(
    connection: Connection,
    model: str,
    before: Standing,
    after: Standing,
    *,
    classes: Sequence[str],
    received: Mapping[int, int],
) -> None:
    """Move counts from the outcomes before a transaction to the new ones.

    Parameters
    ----------
    classes
        Declared ones, in the order in which answers score them.
    received
        Receive time of the transaction's own blocks; others are looked up.
    """
    gone = [row for key, row in before.items() if after.get(key) != row]
    new = [row for key, row in after.items() if before.get(key) != row]
    if not gone and not new:
        return
    rows = gone + new
    sign = np.repeat([-1.0, 1.0], [len(gone), len(new)])
    minutes = {seq: minute_of(us) for seq, us in received.items()}
    minutes |= minutes_of(connection, model, {row.seq for row in rows} - minutes.keys())
    versions = judged_versions(connection, model, rows)
    keys = RecordKeys(
        versions,
        [row.slice for row in rows],
        np.array([minutes.get(row.seq, minute_of(row.ts_us)) for row in rows], dtype=np.int64),
        np.array([row.weight for row in rows], dtype=np.float64),
    )
    outcomes = outcomes_of(rows, declared_number(connection, model))
    add_to_rows(connection, OutcomeCount, _outcome_rows(model, outcomes, rows, keys, sign))
    cells = [
        (minute, version, row.groups, one.predicted, one.label, one.hit)
        for minute, version, row, one in zip(keys.minute_us.tolist(), versions, rows, outcomes, strict=True)
    ]
    add_to_rows(connection, GroupCount, label_rows(model, cells, sign=sign, weight=keys.weight))
    scores, labels = [row.class_scores for row in rows], [one.label for one in outcomes]
    add_to_rows(connection, ScoreCount, score_rows(model, scores, labels, keys, sign, classes))
    _measure(connection, model, outcomes, keys, sign)
    _delays(connection, model, [row for row in new if row.id not in before])
    first = [at for at in range(len(gone), len(rows)) if rows[at].id not in before]
    count_losses(connection, model, (_first(rows[at], versions[at], outcomes[at], keys, at) for at in first))
    if gone:
        for cube in LABELLED:
            cube.drop_empty(connection, model, keys.minute_us[: len(gone)].tolist())


def _first(row: LabelledRow, version: str, outcome: LabelOutcome, keys: RecordKeys, at: int) -> FirstOutcome:
    record_us = int(keys.minute_us[at])
    known_us = max(row.received_us, record_us)
    return FirstOutcome(
        row.id, version, row.slice or "", row.entity, record_us, known_us, row.weight,
        outcome.hit, outcome.error,
        "" if outcome.label in (OTHERS, NUMBER) or not np.isnan(outcome.error) else outcome.label,
    )  # fmt: skip


def judged_versions(connection: Connection, model: str, rows: Sequence[LabelledRow]) -> list[str]:
    """Judged version of stored records as counted: production's, else the replica's.

    The replica's is the champion's of that time; empty where there was none.
    """
    borders = read_borders(connection, model)
    return [
        OTHERS
        if row.is_unnamed
        else row.version
        if row.version is not None and not row.by_replica
        else version_at(borders, row.seq) or ""
        for row in rows
    ]


def confidence_bucket(confidence: int | None) -> int:
    """Bucket of a stored confidence; -1 without one."""
    return -1 if confidence is None else min(confidence * CONFIDENCES // SCALE, CONFIDENCES - 1)


def _outcome_rows(
    model: str, outcomes: Sequence[LabelOutcome], rows: Sequence[LabelledRow], keys: RecordKeys, sign: Floats
) -> list[Row]:
    """Rows of ``outcome_count``, records of one cell put together."""
    sure = np.array([np.nan if row.confidence is None else row.confidence / SCALE for row in rows])
    hit = np.array([one.hit for one in outcomes], dtype=np.float64)
    bucket = np.where(np.isnan(sure), -1, np.minimum(sure * CONFIDENCES + 1e-9, CONFIDENCES - 1))
    parts, own = keys.parts()
    cells, place = distinct(zip(own.tolist(), outcomes, bucket.astype(int).tolist(), strict=True))
    weight = sign * keys.weight
    odds = np.nan_to_num((sure - hit) ** 2)
    terms = (sign, weight, weight * keys.weight, weight * np.nan_to_num(sure), weight * odds)
    return [
        (model, *parts[part], one.predicted, one.label, one.hit, at, int(n), *rest)
        for (part, one, at), (_, (n, *rest)) in zip(cells, summed([place], terms), strict=True)
    ]


def _measure(
    connection: Connection, model: str, outcomes: Sequence[LabelOutcome], keys: RecordKeys, sign: Floats
) -> None:
    """Count absolute and squared errors of answers that are numbers."""
    error = np.array([one.error for one in outcomes])
    if not np.isfinite(error).any():
        return
    for side in (-1.0, 1.0):
        own = np.where(sign == side, error, np.nan)
        rows = measure_rows(model, {"abs_error": np.abs(own), "squared_error": own * own}, keys)
        add_to_rows(connection, MeasureCount, [(*row[:6], *(side * one for one in row[6:])) for row in rows])


def _delays(connection: Connection, model: str, rows: Sequence[LabelledRow]) -> None:
    """Count how long after its record each first label came, at the minute in which it did."""
    if not rows:
        return
    received = np.array([row.received_us for row in rows], dtype=np.int64)
    delay = np.maximum(received - np.array([row.ts_us for row in rows], dtype=np.int64), 0) / 1e6
    keys = RecordKeys(
        judged_versions(connection, model, rows),
        [row.slice for row in rows],
        received - received % MINUTE_US,
        np.ones(len(rows)),
    )
    add_to_rows(connection, MeasureCount, measure_rows(model, {"label_delay_s": delay}, keys))
