"""Erasures that backups from before them have yet to learn of.

A backup holds what was erased behind it. The list that is put beside it has hashes, and the key by which its
restored records are told; `restore` puts it where pending erasures stand.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, select

from outrider.dataops.backup.backup import known_backups
from outrider.dataops.backup.manifest import DATABASE, NAME
from outrider.dataops.backup.restore import ERASURES
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.improvement_tables import DatasetRow, DatasetVersion, Label
from outrider.dataops.state.tables import DeadLetter, Record, table_of
from outrider.dataops.whole_file import write_whole
from outrider.errors import OutriderError

from .hashes import KEY_FILE, HashKey
from .search import dataset_rows, readable_blocks
from .target import ErasureTarget, Found

_RECORD, _LABEL, _LETTER = (table_of(one) for one in (Record, Label, DeadLetter))
_ROW, _VERSION = table_of(DatasetRow), table_of(DatasetVersion)


def erasure_list(folder: Path) -> dict[str, Any]:
    """Hashes of all erasures of a data folder, as a file.

    Parameters
    ----------
    folder
        The data folder, or a backup of it.

    Raises
    ------
    OutriderError
        If it is neither, or nothing was ever erased.
    """
    database = folder / DATABASE
    if not (folder / KEY_FILE).exists() or not database.exists():
        raise OutriderError(f"{folder}: no erasures there; a data folder or a backup of one expected")
    # A backup may not change: no log is made beside it.
    how = "mode=ro&immutable=1" if (folder / NAME).is_file() else "mode=ro"
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?{how}", uri=True)) as db:
        rows = db.execute("SELECT hash, kind, at_us FROM erased_hash ORDER BY at_us, hash").fetchall()
    return {
        "wanted": {
            "subjects": [],
            "records": [],
            "model": None,
            "ids": {},
            "key": HashKey.of_folder(folder).secret.hex(),
            "hashes": [[hash_.hex(), kind, at_us] for hash_, kind, at_us in rows],
        },
        "who": "restore",
        "asked_us": max((at_us for *_, at_us in rows), default=0),
        "problem": "",
        "models": [],
    }


def tell_backups(folder: Path) -> list[str]:
    """Put the list beside every known backup; return their places."""
    backups = known_backups(folder)
    if not backups:
        return []
    content = json.dumps(erasure_list(folder))
    told = []
    for backup in backups:
        if backup.is_there:
            write_whole(Path(backup.path) / ERASURES, content)
            told.append(f"{backup.path} (holds it still; a restore erases it)")
        else:
            told.append(f"{backup.path} (not there: where it was moved to, it holds it still)")
    return told


def named(
    connection: Connection, journal: SqliteJournal, objects: LocalObjects, wanted: ErasureTarget
) -> ErasureTarget:
    """Target with the names that a restored folder has for hashes."""
    key = HashKey(bytes.fromhex(wanted.key))
    records = {bytes.fromhex(text) for text, kind, _ in wanted.hashes if kind == "record"}
    subjects = {bytes.fromhex(text) for text, kind, _ in wanted.hashes if kind == "subject"}
    ids: dict[str, set[str]] = {}
    entities: set[str] = set()
    for model, id_, entity in _names(connection, journal, objects):
        if id_ is not None and key.record(model, id_) in records:
            ids.setdefault(model, set()).add(id_)
        if entity is not None and subjects and entity not in entities:
            if key.subject(None, entity) in subjects:
                entities.add(entity)
            elif key.subject(model, entity) in subjects and id_ is not None:
                ids.setdefault(model, set()).add(id_)
    return ErasureTarget(
        tuple(sorted(entities)),
        ids={model: sorted(own) for model, own in ids.items()},
        key=wanted.key,
        hashes=wanted.hashes,
    )


def hash_rows(wanted: ErasureTarget, erasure: str) -> list[tuple[bytes, str, str, int]]:
    """Rows of the hashes that a list brought."""
    return [(bytes.fromhex(text), kind, erasure, at_us) for text, kind, at_us in wanted.hashes]


def _names(
    connection: Connection, journal: SqliteJournal, objects: LocalObjects
) -> Iterator[tuple[str, str | None, str | None]]:
    """Model, id and entity of all that is stored, repeats included."""
    yield from _rows(connection.execute(select(_RECORD.c.model, _RECORD.c.id, _RECORD.c.entity)))
    yield from _rows(connection.execute(select(_LABEL.c.model, _LABEL.c.record_id, _LABEL.c.entity)))
    yield from ((m, i, None) for m, i in connection.execute(select(_LETTER.c.model, _LETTER.c.record_id)))
    query = select(_VERSION.c.model, _ROW.c.record_id).where(_ROW.c.dataset == _VERSION.c.dataset).distinct()
    yield from ((model, id_, None) for model, id_ in connection.execute(query))
    found = Found()
    for block in readable_blocks(journal, None, found):
        yield from _of_table(block.block.model, block.stored.table)
    for model, table in dataset_rows(connection, objects, None):
        yield from _of_table(model, table)


def _rows(rows: Iterable[Any]) -> Iterator[tuple[str, str | None, str | None]]:
    return ((model, id_ or None, entity) for model, id_, entity in rows)


def _of_table(model: str, table: pa.RecordBatch) -> Iterator[tuple[str, str | None, str | None]]:
    columns = []
    for name in ("id", "entity"):
        index = table.schema.get_field_index(name)
        nothing: list[str | None] = [None] * table.num_rows
        columns.append(nothing if index < 0 else table.column(index).cast(pa.string()).to_pylist())
    return ((model, id_, entity) for id_, entity in zip(*columns, strict=True))
