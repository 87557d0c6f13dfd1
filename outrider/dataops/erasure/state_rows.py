"""Rows of erased records in ``state.db``, and texts that quote them."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Column, Connection

from outrider.assertions import Batch
from outrider.assertions.windows.state import holds
from outrider.dataops.journal.row_expiry import id_hash
from outrider.dataops.judges import PREFIX as JUDGE
from outrider.dataops.ledger.answers import answering_versions
from outrider.dataops.ledger.class_words import NUMBER, class_word
from outrider.dataops.ledger.cube import Cube
from outrider.dataops.ledger.losses import OF_LABEL
from outrider.dataops.ledger.stated_values import ANSWER, GROUP, LABEL, OTHERS, forget_values
from outrider.dataops.state.columns import ROW_FACTS, Erase
from outrider.dataops.state.folder_secret import secret_beside
from outrider.dataops.state.layout import columns_with

from .target import ErasureTarget, Found
from .texts import Quotations

_AT_ONCE = 2000


_GONE = "(SELECT model, id FROM temp.gone)"
_WINDOW = "model, slot, window"
_ROWS: Mapping[Erase, str] = {
    "record": f"(model, {{0}}) IN {_GONE}",
    "subject": "(model, {0}) IN (SELECT model, entity FROM temp.gone_entity)",
    "flag": "{0} IN (SELECT id FROM temp.gone_flag)",
    "id_hash": "{0} IN (SELECT hash FROM temp.gone_hash)",
    "receipt": "EXISTS (SELECT 1 FROM temp.gone_time AS gone WHERE gone.model = profile.model"
    " AND gone.at_us BETWEEN profile.{0} AND profile.{0} + profile.span_s * 1000000 - 1)",
    "window": f"({_WINDOW}) IN (SELECT {_WINDOW} FROM temp.gone_window)",
    "judge": "{0} NOT IN (SELECT digest FROM temp.kept_judge)",
}
"""Condition on rows that go, by a column."""
_EMPTIED: Mapping[Erase, str] = {
    "cleared_record": f"(model, {{0}}) IN {_GONE}",
    "cleared_model": "model IN (SELECT model FROM temp.gone)",
}
_IN_SLICE = "(model, slice) IN (SELECT model, slice FROM temp.gone_slice)"
_OF_LABELS: Mapping[Erase, str] = {"record": "record_id", "subject": "entity"}
_NAMES = {"flag_record": "flag_members", "expired_record": "expired_ids"}
"""What the rows of tables are called; others have the name of their table."""
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
    run(f"INSERT INTO temp.gone_flag SELECT id FROM flag WHERE (model, record_id) IN {_GONE}")
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


def _rows_that_go() -> Iterator[tuple[str, str, str]]:
    """Name, table and condition of erased rows."""
    found: dict[str, list[str]] = {}
    for column, fact in columns_with(*ROW_FACTS):
        found.setdefault(column.table.name, []).append(_ROWS[fact].format(column.name))
    for table_name, conditions in found.items():
        yield _NAMES.get(table_name, f"{table_name}s"), table_name, " OR ".join(conditions)


def count_rows(connection: Connection, found: Found, quoted: Quotations) -> Counter[str]:
    """Numbers of rows, answers and quotations that go, by name. After :func:`name_gone`."""
    counts: Counter[str] = Counter()
    for name, table, where in _rows_that_go():
        query = f'SELECT count(*) FROM "{table}" WHERE {where}'
        counts[name] = int(connection.exec_driver_sql(query).scalar() or 0)
    counts["answers"] = sum(len(gone) for *_, gone in _answers(connection, found))
    counts["quotations"] = sum(1 for _ in _quotations(connection, quoted))
    return counts


def erase_rows_of(connection: Connection, found: Found, quoted: Quotations) -> Counter[str]:
    """Delete rows, answers and quotations; their numbers. After :func:`name_gone`."""
    counts: Counter[str] = Counter()
    for column, fact in columns_with(*_EMPTIED):
        where = _EMPTIED[fact].format(column.name)
        connection.exec_driver_sql(f"UPDATE {column.table.name} SET {column.name} = '' WHERE {where}")
    _fold_slices(connection)
    _fold_classes(connection)
    _fold_groups(connection)
    for name, table_name, where in _rows_that_go():
        counts[name] = connection.exec_driver_sql(f'DELETE FROM "{table_name}" WHERE {where}').rowcount
    for model, version, seq, batch, gone in list(_answers(connection, found)):
        kept = batch.take(np.setdiff1d(np.arange(batch.rows), gone)).to_ipc()
        connection.exec_driver_sql(
            "UPDATE answer SET payload = ? WHERE model = ? AND version = ? AND seq = ?",
            (kept, model, version, seq),
        )
        counts["answers"] += len(gone)
    for column, key, clean in list(_quotations(connection, quoted)):
        where = " AND ".join(f'"{one.name}" = ?' for one in column.table.primary_key)
        set_ = f'UPDATE "{column.table.name}" SET "{column.name}" = ?'
        connection.exec_driver_sql(f"{set_} WHERE {where}", (clean, *key))
        counts["quotations"] += 1
    return counts


def _fold_slices(connection: Connection) -> None:
    """Count what only erased records were sliced by with what has no slice: the totals stay.

    Values without a place go from the books: whose they are is known of no record.
    """
    for column, _ in columns_with("slice"):
        if column.primary_key:
            Cube(column.table).move(connection, {column.name: "''"}, _IN_SLICE, {})
        else:
            connection.exec_driver_sql(f"UPDATE {column.table.name} SET {column.name} = '' WHERE {_IN_SLICE}")
    connection.exec_driver_sql(
        "DELETE FROM stated_value WHERE model IN (SELECT model FROM temp.gone) AND (NOT is_named"
        " OR (dimension = 'slice' AND (model, value) IN (SELECT model, slice FROM temp.gone_slice)))"
    )


def _fold_classes(connection: Connection) -> None:
    """Count classes that only erased records or their labels name without their names."""
    there = f"(model, id) IN {_GONE}"
    labelled = " OR ".join(_ROWS[fact].format(name) for fact, name in _OF_LABELS.items())
    for (model,) in connection.exec_driver_sql("SELECT DISTINCT model FROM temp.gone").all():
        own, others = (
            _class_names(connection, model, f"{not_}({there})", f"{not_}({labelled})")
            for not_ in ("", "NOT ")
        )
        for name in own - others - {OTHERS, NUMBER}:
            _fold(connection, "class", model, name)
            _fold(connection, "label_slice", model, name, OF_LABEL)
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
            _fold(connection, "group", model, part)
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


def _fold(connection: Connection, fact: Erase, model: str, name: str, begin: str = "") -> None:
    """Add counts under a name to those that no name has."""
    given = {"model": model, "name": begin + name, "others": begin + OTHERS}
    for column, _ in columns_with(fact):
        where = f"model = :model AND {column.name} = :name"
        Cube(column.table).move(connection, {column.name: ":others"}, where, given)


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
) -> Iterator[tuple[Column[Any], tuple[object, ...], str]]:
    """Column, key and clean text of what quotes something that goes.

    What is told of other models than the one that is named may call something else so.
    """
    if not quoted:
        return
    for column, fact in columns_with("quotes", "categories"):
        names = ", ".join(f'"{one.name}"' for one in (column, *column.table.primary_key))
        query = f'SELECT {names} FROM "{column.table.name}"'
        given: tuple[str, ...] = ()
        if quoted.model is not None and "model" in column.table.c:
            query, given = f"{query} WHERE model = ?", (quoted.model,)
        rows = connection.exec_driver_sql(query, given)
        while part := rows.fetchmany(_AT_ONCE):
            for at in quoted.suspects(row[0] for row in part):
                text = part[at][0]
                clean = _clean_layout(quoted, text) if fact == "categories" else quoted.cleaned(text)
                if clean is not None:
                    yield column, tuple(part[at][1:]), clean


def _clean_layout(quoted: Quotations, text: str) -> str | None:
    """Layout without categories that quote; edges and kinds are of many records, and stay."""
    columns = json.loads(text)
    for column in columns:
        column["categories"] = quoted.cleaned_value(column["categories"])
    clean = json.dumps(columns, separators=(",", ":"))
    return None if clean == text else clean
