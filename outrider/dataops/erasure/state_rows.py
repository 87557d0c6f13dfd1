"""Rows of erased records in ``state.db``, and texts that quote them."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.assertions import Batch
from outrider.assertions.windows.state import holds
from outrider.dataops.journal.row_expiry import id_hash
from outrider.dataops.judges import PREFIX as JUDGE
from outrider.dataops.ledger.answers import answering_versions
from outrider.dataops.ledger.class_words import NUMBER, class_word
from outrider.dataops.ledger.losses import OF_LABEL
from outrider.dataops.ledger.stated_values import ANSWER, GROUP, LABEL, OTHERS, forget_values
from outrider.dataops.state.folder_secret import secret_beside

from .target import ErasureTarget, Found
from .texts import Quotations

_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Rows that go, by a condition on ids or flags."""

    name: str
    table: str
    where: str


_OF_RECORD = "(model, record_id) IN (SELECT model, id FROM temp.gone)"
_OF_FLAG = "flag_id IN (SELECT id FROM temp.gone_flag)"
_OF_SUBJECT = "(model, entity) IN (SELECT model, entity FROM temp.gone_entity)"
_WINDOW = "model, slot, window"
ROWS = (
    OwnRows("records", "record", "(model, id) IN (SELECT model, id FROM temp.gone)"),
    OwnRows("reviews", "review", _OF_FLAG),
    OwnRows("flag_members", "flag_record", f"{_OF_FLAG} OR {_OF_RECORD}"),
    OwnRows("weak_labels", "weak_label", f"{_OF_FLAG} OR {_OF_RECORD}"),
    OwnRows("flags", "flag", _OF_RECORD),
    OwnRows("live_answers", "live_answer", _OF_RECORD),
    OwnRows("labels", "label", f"{_OF_RECORD} OR {_OF_SUBJECT}"),
    OwnRows("label_requests", "label_request", _OF_RECORD),
    OwnRows("dead_letters", "dead_letter", _OF_RECORD),
    OwnRows("expired_ids", "expired_record", "hash IN (SELECT hash FROM temp.gone_hash)"),
    OwnRows(
        "profiles",
        "profile",
        "EXISTS (SELECT 1 FROM temp.gone_time AS gone WHERE gone.model = profile.model"
        " AND gone.at_us BETWEEN profile.start_us AND profile.start_us + profile.span_s * 1000000 - 1)",
    ),
    OwnRows(
        "window_checkpoints", "window_checkpoint", f"({_WINDOW}) IN (SELECT {_WINDOW} FROM temp.gone_window)"
    ),
    OwnRows("judge_answers", "judge_answer", "judge NOT IN (SELECT digest FROM temp.kept_judge)"),
)
"""In this order: reviews and members are found by their flags."""
_LAYOUTS = "profile_layout"
TEXTS = (
    ("flag", "evidence"),
    ("weak_label", "value"),
    ("review", "note"),
    ("incident", "first_record"),
    ("incident", "note"),
    ("incident", "details"),
    ("strike", "detail"),
    ("suite_outcome", "outcome"),
    ("dead_letter", "detail"),
    ("outbox", "payload"),
    ("outbox", "last_error"),
    ("job", "params"),
    ("job", "result"),
    ("gate_verdict", "evidence"),
    ("gate_verdict", "reasons"),
    ("shadow_test", "findings"),
    ("label", "source"),
    ("label", "key"),
    ("quarantine", "reasons"),
    ("model_version", "note"),
    ("champion_change", "reason"),
    ("lineage_edge", "parent"),
    ("trigger_evaluation", "why"),
    ("trigger_state", "suggestion"),
    ("drift_state", "streams"),
    (_LAYOUTS, "layout"),
)
"""Table and column of texts and JSON that may quote a record."""


_COUNTS = (
    ("record_count", "model, slice, minute_us, version", "records, entities"),
    ("flag_count", "model, slot, assertion, revision, slice, minute_us, version", "flags, kept, entities"),
    (
        "measure_count",
        "model, measure, minute_us, version, slice, bucket",
        "records, weight, squares, total",
    ),
    ("loss_count", "model, version, block, slice, weight, bucket", "records"),
    (
        "score_count",
        "model, minute_us, version, slice, of_class, place, bucket, is_label",
        "records, weight, squares",
    ),
    (
        "outcome_count",
        "model, minute_us, version, slice, predicted, label, hit, bucket",
        "records, weight, squares, confidence, brier",
    ),
)
"""Table, key and numbers of counts by slice."""
_OUTCOMES = _COUNTS[-1]
_LOSSES = next(one for one in _COUNTS if one[0] == "loss_count")
_GROUPS = (
    "group_count",
    "model, minute_us, attribute, version, part, is_labelled, predicted, label, hit",
    "records, entities, weight, squares",
)
_SLICES = """
    INSERT INTO temp.gone_slice SELECT model, slice FROM record
    WHERE coalesce(slice, '') NOT IN ('', '__other__')
    GROUP BY model, slice HAVING max((model, id) NOT IN (SELECT model, id FROM temp.gone)) = 0
"""


def name_gone(connection: Connection, wanted: ErasureTarget, found: Found) -> None:
    """Put ids, flags and times into temporary tables of this connection."""
    run = connection.exec_driver_sql
    run("PRAGMA temp_store = MEMORY")
    for name, columns in (
        ("gone", "model, id"),
        ("gone_entity", "model, entity"),
        ("gone_time", "model, at_us"),
        ("gone_flag", "id"),
        ("gone_hash", "hash"),
        ("gone_window", _WINDOW),
        ("kept_judge", "digest"),
        ("gone_slice", "model, slice"),
    ):
        run(f"DROP TABLE IF EXISTS temp.{name}")
        run(f"CREATE TEMP TABLE {name} ({columns}, PRIMARY KEY ({columns})) WITHOUT ROWID")
    ids = [(model, id_) for model, own in found.ids.items() for id_ in own]
    _insert(connection, "gone (model, id)", ids)
    if run("SELECT 1 FROM expired_record LIMIT 1").first() is not None:
        secret = secret_beside(connection)
        _insert(connection, "gone_hash", [(id_hash(secret, model, id_),) for model, id_ in ids])
    models = {*found.ids, *found.records, *found.labels}
    _insert(connection, "gone_entity", [(model, one) for model in models for one in wanted.subjects])
    run(f"INSERT INTO temp.gone_flag SELECT id FROM flag WHERE {_OF_RECORD}")
    run(_SLICES)
    _insert(connection, "gone_time", sorted(found.received))
    _insert(connection, "gone_window", list(_windows(connection, found)))
    _insert(connection, "kept_judge", [(digest,) for digest in _other_judges(connection, models)])


def _windows(connection: Connection, found: Found) -> Iterator[tuple[str, str, str]]:
    """Checkpoints of windows that hold a record which goes."""
    run = connection.exec_driver_sql
    times = "SELECT ts_us FROM record WHERE model = ? AND id IN (SELECT id FROM temp.gone WHERE model = ?)"
    for model, ids in found.ids.items():
        times_us = {row.ts_us for row in run(times, (model, model))}
        for row in run(f"SELECT {_WINDOW}, payload FROM window_checkpoint WHERE model = ?", (model,)):
            if holds(row.payload, ids, times_us):
                yield row.model, row.slot, row.window


def _other_judges(connection: Connection, models: Collection[str]) -> set[str]:
    """Digests of the judges of other models alone, whose stored replies stay."""
    own: set[str] = set()
    others: set[str] = set()
    for (model,) in connection.exec_driver_sql("SELECT DISTINCT model FROM answer").all():
        versions = [one for one in answering_versions(connection, model) if one.startswith(JUDGE)]
        (own if model in models else others).update(one.rpartition("@")[2] for one in versions)
    return others - own


def count_rows(connection: Connection, found: Found, quoted: Quotations) -> Counter[str]:
    """Numbers of rows, answers and quotations that go, by name. After :func:`name_gone`."""
    counts: Counter[str] = Counter()
    for own in ROWS:
        query = f'SELECT count(*) FROM "{own.table}" WHERE {own.where}'
        counts[own.name] = int(connection.exec_driver_sql(query).scalar() or 0)
    counts["answers"] = sum(len(gone) for *_, gone in _answers(connection, found))
    counts["quotations"] = sum(1 for _ in _quotations(connection, quoted))
    return counts


def erase_rows_of(connection: Connection, found: Found, quoted: Quotations) -> Counter[str]:
    """Delete rows, answers and quotations; their numbers. After :func:`name_gone`."""
    counts: Counter[str] = Counter()
    connection.exec_driver_sql(
        "UPDATE incident SET first_record = '' "
        "WHERE (model, first_record) IN (SELECT model, id FROM temp.gone)"
    )
    _join_counts(connection)
    connection.exec_driver_sql(
        "UPDATE loss_block SET entities = '' WHERE model IN (SELECT model FROM temp.gone)"
    )
    _fold_classes(connection)
    _fold_groups(connection)
    for own in ROWS:
        query = f'DELETE FROM "{own.table}" WHERE {own.where}'
        counts[own.name] = connection.exec_driver_sql(query).rowcount
    for model, version, seq, batch, gone in list(_answers(connection, found)):
        kept = batch.take(np.setdiff1d(np.arange(batch.rows), gone)).to_ipc()
        connection.exec_driver_sql(
            "UPDATE answer SET payload = ? WHERE model = ? AND version = ? AND seq = ?",
            (kept, model, version, seq),
        )
        counts["answers"] += len(gone)
    for table, column, key, clean in list(_quotations(connection, quoted)):
        where = " AND ".join(f'"{name}" = ?' for name in _key(connection, table))
        connection.exec_driver_sql(f'UPDATE "{table}" SET "{column}" = ? WHERE {where}', (clean, *key))
        counts["quotations"] += 1
    return counts


def _join_counts(connection: Connection) -> None:
    """Count what only erased records were sliced by with what has no slice: the totals stay.

    Values without a place go from the books: whose they are is known of no record.
    """
    for table, key, numbers in _COUNTS:
        there = "(model, slice) IN (SELECT model, slice FROM temp.gone_slice)"
        names = f"{key}, {numbers}"
        added = ", ".join(f"{one} = {one} + excluded.{one}" for one in numbers.split(", "))
        connection.exec_driver_sql(
            f"INSERT INTO {table} ({names}) SELECT {names.replace('slice', repr(''), 1)} FROM {table} "
            f"WHERE {there} ON CONFLICT ({key}) DO UPDATE SET {added}"
        )
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE {there}")
    connection.exec_driver_sql(
        "DELETE FROM stated_value WHERE model IN (SELECT model FROM temp.gone) AND (NOT is_named"
        " OR (dimension = 'slice' AND (model, value) IN (SELECT model, slice FROM temp.gone_slice)))"
    )
    connection.exec_driver_sql(
        "UPDATE incident SET slice = '' WHERE (model, slice) IN (SELECT model, slice FROM temp.gone_slice)"
    )


def _fold_classes(connection: Connection) -> None:
    """Count classes that only erased records or their labels name without their names."""
    there = "(model, id) IN (SELECT model, id FROM temp.gone)"
    labelled = f"{_OF_RECORD} OR {_OF_SUBJECT}"
    for (model,) in connection.exec_driver_sql("SELECT DISTINCT model FROM temp.gone").all():
        own, others = (
            _class_names(connection, model, f"{not_}({there})", f"{not_}({labelled})")
            for not_ in ("", "NOT ")
        )
        for name in own - others - {OTHERS, NUMBER}:
            for table in (_OUTCOMES, _GROUPS):
                for column in ("predicted", "label"):
                    _fold(connection, table, model, column, name, OTHERS)
            _fold(connection, _LOSSES, model, "slice", OF_LABEL + name, OF_LABEL + OTHERS)
            for dimension in (ANSWER, LABEL):
                forget_values(connection, model, dimension, [name])


def _fold_groups(connection: Connection) -> None:
    """Count groups that only erased records are in without their names."""
    for (model,) in connection.exec_driver_sql("SELECT DISTINCT model FROM temp.gone").all():
        own, others = (
            {
                part
                for row in connection.exec_driver_sql(
                    "SELECT DISTINCT groups FROM record WHERE model = ? AND groups IS NOT NULL"
                    f" AND id {not_}IN (SELECT id FROM temp.gone WHERE model = ?)",
                    (model, model),
                )
                for part in json.loads(row.groups).values()
            }
            for not_ in ("", "NOT ")
        )
        for part in own - others - {OTHERS}:
            _fold(connection, _GROUPS, model, "part", part, OTHERS)
            connection.exec_driver_sql(
                "DELETE FROM stated_value WHERE model = ? AND value = ? AND dimension LIKE ?",
                (model, part, f"{GROUP}%"),
            )


def _class_names(connection: Connection, model: str, records: str, labels: str) -> set[str]:
    """Names under which predictions and labels of some rows are counted."""
    query = (
        f"SELECT DISTINCT predicted FROM record WHERE model = ? AND {records}"
        f" UNION SELECT DISTINCT value FROM label WHERE model = ? AND {labels}"
    )
    return {class_word(row[0]) for row in connection.exec_driver_sql(query, (model, model))}


def _fold(
    connection: Connection, counts: tuple[str, str, str], model: str, column: str, name: str, other: str
) -> None:
    """Add counts under a name to those that no name has."""
    table, key, numbers = counts
    given = ", ".join("?" if one == column else one for one in f"{key}, {numbers}".split(", "))
    added = ", ".join(f"{one} = {one} + excluded.{one}" for one in numbers.split(", "))
    where = f"model = ? AND {column} = ?"
    connection.exec_driver_sql(
        f"INSERT INTO {table} ({key}, {numbers}) SELECT {given} FROM {table} WHERE {where} "
        f"ON CONFLICT ({key}) DO UPDATE SET {added}",
        (other, model, name),
    )
    connection.exec_driver_sql(f"DELETE FROM {table} WHERE {where}", (model, name))


def _insert(connection: Connection, into: str, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        connection.exec_driver_sql(f"INSERT OR IGNORE INTO temp.{into} VALUES ({marks})", list(rows))


def _answers(connection: Connection, found: Found) -> Iterator[tuple[str, str, int, Batch, NDArray[np.intp]]]:
    """Model, version and block of answers, with the rows of them that go."""
    query = "SELECT payload FROM answer WHERE model = ? AND version = ? AND seq = ?"
    for model, blocks in found.records.items():
        ids = found.ids.get(model, set())
        for version in answering_versions(connection, model):
            for seq in sorted(blocks):
                payload = connection.exec_driver_sql(query, (model, version, seq)).scalar()
                if payload is None:
                    continue
                batch = Batch.from_ipc(payload)
                gone = np.flatnonzero([key in ids for key in batch.keys.tolist()])
                if len(gone):
                    yield model, version, seq, batch, gone


def _quotations(
    connection: Connection, quoted: Quotations
) -> Iterator[tuple[str, str, tuple[object, ...], str]]:
    """Table, column, key and clean text of what quotes something that goes.

    What is told of other models than the one that is named may call something else so.
    """
    if not quoted:
        return
    for table, column in TEXTS:
        key = ", ".join(f'"{name}"' for name in _key(connection, table))
        query = f'SELECT "{column}", {key} FROM "{table}"'
        given: tuple[str, ...] = ()
        if quoted.model is not None and "model" in _columns(connection, table):
            query, given = f"{query} WHERE model = ?", (quoted.model,)
        rows = connection.exec_driver_sql(query, given)
        while part := rows.fetchmany(_AT_ONCE):
            for at in quoted.suspects(row[0] for row in part):
                text = part[at][0]
                clean = _clean_layout(quoted, text) if table == _LAYOUTS else quoted.cleaned(text)
                if clean is not None:
                    yield table, column, tuple(part[at][1:]), clean


def _clean_layout(quoted: Quotations, text: str) -> str | None:
    """Layout without categories that quote; edges and kinds are of many records, and stay."""
    columns = json.loads(text)
    for column in columns:
        column["categories"] = quoted.cleaned_value(column["categories"])
    clean = json.dumps(columns, separators=(",", ":"))
    return None if clean == text else clean


def _columns(connection: Connection, table: str) -> list[str]:
    return [row[1] for row in connection.exec_driver_sql(f'PRAGMA table_info("{table}")')]


def _key(connection: Connection, table: str) -> list[str]:
    found = connection.exec_driver_sql(f'PRAGMA table_info("{table}")').all()
    return [row[1] for row in sorted(found, key=lambda row: row[5]) if row[5]]
