"""Search for all that is stored of subjects and records.

The journal is read as a whole, twice: labels, waiting sides and repeats are in no index, and what quotes a
record is told from what quotes others by the values that others have, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from outrider.dataops.datasets.erased import rows_of_entities
from outrider.dataops.journal.entries import Block
from outrider.dataops.journal.journal import DONE, Half, Journal, SqliteJournal
from outrider.dataops.journal.stored_rows import StoredRows, read_stored
from outrider.dataops.payloads.columns import is_payload
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.improvement_tables import (
    DatasetRow,
    DatasetRowFile,
    DatasetVersion,
    Label,
    Quarantine,
)
from outrider.dataops.state.rows import among
from outrider.dataops.state.tables import AssertionRow, DeadLetter, Flag, Record, table_of

from .target import ErasureTarget, Found
from .values import telling_values, without_shared

_RECORD, _LABEL, _LETTER, _FLAG = (table_of(one) for one in (Record, Label, DeadLetter, Flag))
_ROW, _VERSION, _FILE = (table_of(one) for one in (DatasetRow, DatasetVersion, DatasetRowFile))
_REFUSED = table_of(Quarantine)
_DATASET_ROWS = 65_536
_ASSERTION = table_of(AssertionRow)
_CHECKSUM_BYTES = 4
"""In front of what waits in the journal."""
_SEPARATOR = "\x1f"
"""Between scope and id, in the key of a side."""


def search(
    connection: Connection, journal: SqliteJournal, objects: LocalObjects, wanted: ErasureTarget
) -> Found:
    """Stored traces of subjects and records; changes nothing."""
    found = Found()
    for model, ids in wanted.ids.items():
        found.add_ids(model, ids)
    _search_state(connection, wanted, found)
    if wanted.subjects:
        for model, ids in rows_of_entities(connection.engine, objects, wanted.subjects).items():
            if wanted.concerns(model):
                found.add_ids(model, ids)
    for block in readable_blocks(journal, wanted.model, found):
        _note_ids(block.block.model, block.stored.table, wanted, found)
    keyed = _window_columns(connection)
    values: set[str] = set()
    shared: dict[tuple[str, str], dict[Any, list[tuple[int, int]]]] = {}
    digests: set[str] = set()
    for block in readable_blocks(journal, wanted.model, found):
        rows = _note_places(block, wanted, found)
        if len(rows):
            found.received.add((block.block.model, block.block.received_us))
            gone = block.stored.table.take(pa.array(np.searchsorted(block.stored.rows, rows)))
            values |= telling_values(gone)
            digests |= _payload_digests(gone)
            _note_keys(block, rows, gone, keyed, shared)
    for model, table in dataset_rows(connection, objects, wanted.model):
        values |= telling_values(table.filter(pa.array(_named(table, "id", found.ids.get(model, ())))))
    found.values, found.payloads = values, digests
    _leave_to_others(journal, found, shared)
    for model, table in dataset_rows(connection, objects, None) if found.values else ():
        others = ~_named(table, "id", found.ids.get(model, ()))
        found.values = without_shared(found.values, table.filter(pa.array(others)))
    _search_waiting(journal, wanted, found)
    return found


class JournalBlock:
    """Readable block of the journal."""

    __slots__ = ("block", "stored")

    def __init__(self, block: Block, stored: StoredRows) -> None:
        self.block, self.stored = block, stored


def readable_blocks(journal: Journal, model: str | None, found: Found) -> Iterator[JournalBlock]:
    """Blocks of records and labels, of one model or all."""
    after = 0
    while blocks := journal.read(after):
        after = blocks[-1].seq
        for block in blocks:
            if block.kind not in ("records", "kept", "labels") or model not in (None, block.model):
                continue
            try:
                if block.damage:
                    raise ValueError(block.damage)
                stored = read_stored(block.payload)
            except (pa.ArrowException, OSError, ValueError):
                if block.seq not in found.unreadable:
                    found.unreadable.append(block.seq)
                continue
            yield JournalBlock(block, stored)


def _search_state(connection: Connection, wanted: ErasureTarget, found: Found) -> None:
    if wanted.subjects:
        for model, id_ in connection.execute(
            select(_RECORD.c.model, _RECORD.c.id).where(among(_RECORD.c.entity, wanted.subjects))
        ):
            _add(found, wanted, model, id_)
        for model, id_, seq, row in connection.execute(
            select(_LABEL.c.model, _LABEL.c.record_id, _LABEL.c.seq, _LABEL.c.row).where(
                among(_LABEL.c.entity, wanted.subjects)
            )
        ):
            if wanted.concerns(model):
                found.labels.setdefault(model, {}).setdefault(seq, []).append(row)
                _add(found, wanted, model, id_)
    if wanted.records:
        for table, column in (
            (_RECORD, _RECORD.c.id),
            *((one, one.c.record_id) for one in (_LABEL, _LETTER, _FLAG)),
        ):
            query = select(table.c.model, column).where(among(column, wanted.records)).distinct()
            for model, id_ in connection.execute(query):
                _add(found, wanted, model, id_)
        for table in (_ROW, _REFUSED):
            query = (
                select(_VERSION.c.model, table.c.record_id)
                .where(among(table.c.record_id, wanted.records), table.c.dataset == _VERSION.c.dataset)
                .distinct()
            )
            for model, id_ in connection.execute(query):
                _add(found, wanted, model, id_)


def _add(found: Found, wanted: ErasureTarget, model: str, id_: str) -> None:
    if id_ and wanted.concerns(model):
        found.add_ids(model, [id_])


def dataset_rows(
    connection: Connection, objects: LocalObjects, model: str | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of datasets with their model, some at a time."""
    query = (
        select(_VERSION.c.model, _FILE.c.sha256)
        .where(_FILE.c.dataset == _VERSION.c.dataset, _FILE.c.file == _VERSION.c.number)
        .distinct()
    )
    for own, digest in connection.execute(query).all():
        if model in (None, own) and objects.has(digest):
            with pq.ParquetFile(objects.path(digest)) as file:
                for batch in file.iter_batches(_DATASET_ROWS):
                    yield own, batch


def _note_ids(model: str, table: pa.RecordBatch, wanted: ErasureTarget, found: Found) -> None:
    mask = _named(table, "entity", wanted.subjects) | _named(table, "id", wanted.records)
    if mask.any():
        ids = table.column("id").filter(pa.array(mask)).drop_null().cast(pa.string())
        found.add_ids(model, ids.to_pylist())


def _note_places(block: JournalBlock, wanted: ErasureTarget, found: Found) -> NDArray[np.intp]:
    model, table = block.block.model, block.stored.table
    mask = _named(table, "entity", wanted.subjects) | _named(table, "id", found.ids.get(model, ()))
    rows = block.stored.rows[mask]
    if len(rows):
        kind = found.labels if block.block.kind == "labels" else found.records
        kind.setdefault(model, {})[block.block.seq] = rows.tolist()
    return rows


def _named(table: pa.RecordBatch, name: str, values: Iterable[str]) -> NDArray[np.bool_]:
    """Rows whose column has one of the values, shape (rows,)."""
    among = pa.array(sorted(values), pa.string())
    index = table.schema.get_field_index(name)
    if index < 0 or not len(among) or not table.num_rows:
        return np.zeros(table.num_rows, dtype=np.bool_)
    column = table.column(index)
    if not pa.types.is_string(column.type):
        column = column.cast(pa.string())
    mask: NDArray[np.bool_] = pc.is_in(column, value_set=among).to_numpy(zero_copy_only=False)
    return mask


# ---- what others share ---------------------------------------------------------------------------------


def _window_columns(connection: Connection) -> dict[str, set[str]]:
    """Columns by which windows of a model tell entities apart."""
    found: dict[str, set[str]] = {}
    query = select(_ASSERTION.c.model, _ASSERTION.c.window_by).where(_ASSERTION.c.window_by != "").distinct()
    for model, by in connection.execute(query):
        found.setdefault(model, set()).add(by)
    return found


def _note_keys(
    block: JournalBlock,
    rows: NDArray[np.intp],
    gone: pa.RecordBatch,
    keyed: Mapping[str, set[str]],
    shared: dict[tuple[str, str], dict[Any, list[tuple[int, int]]]],
) -> None:
    """Note under which values windows held records that go."""
    if block.block.kind == "labels":
        return
    for by in keyed.get(block.block.model, {"entity"}):
        index = gone.schema.get_field_index(by)
        if index < 0 or pa.types.is_nested(gone.column(index).type):
            continue
        places = shared.setdefault((block.block.model, by), {})
        for row, value in zip(rows.tolist(), gone.column(index).to_pylist(), strict=True):
            if value is not None:
                places.setdefault(value, []).append((block.block.seq, row))


def _leave_to_others(
    journal: Journal,
    found: Found,
    shared: Mapping[tuple[str, str], Mapping[Any, list[tuple[int, int]]]],
) -> None:
    """Take out what records that stay have, too: values, payloads; and note whose windows held one."""
    if not (found.values or found.payloads or shared):
        return
    known: set[tuple[str, str, Any]] = set()
    for block in readable_blocks(journal, None, found):
        places = (found.labels if block.block.kind == "labels" else found.records).get(block.block.model, {})
        stay = ~np.isin(block.stored.rows, places.get(block.block.seq, []))
        table = block.stored.table.filter(pa.array(stay))
        found.values = without_shared(found.values, table)
        if found.payloads:
            found.payloads -= _payload_digests(table)
        for (model, by), values in shared.items():
            index = table.schema.get_field_index(by)
            if model != block.block.model or block.block.kind == "labels" or index < 0:
                continue
            column = table.column(index)
            there = np.flatnonzero(pc.is_in(column, value_set=_alike(values, column.type)))
            rows = block.stored.rows[stay][there].tolist()
            for row, value in zip(rows, column.take(pa.array(there)).to_pylist(), strict=True):
                if (model, by, value) not in known:
                    known.add((model, by, value))
                    found.contexts |= {(model, by, *place, block.block.seq, row) for place in values[value]}


def _alike(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Values in the type of a column; none where they are of another."""
    try:
        return pa.array(list(values), kind)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([], kind)


def _payload_digests(table: pa.RecordBatch) -> set[str]:
    """SHA-256 of referenced payloads."""
    found: set[str] = set()
    for field in table.schema:
        if is_payload(field.type):
            column = pc.struct_field(table.column(field.name), "sha256")
            found.update(column.drop_null().unique().to_pylist())
    return found


# ---- what waits in the journal -------------------------------------------------------------------------


def _search_waiting(journal: SqliteJournal, wanted: ErasureTarget, found: Found) -> None:
    schemas = {
        (seen.model, seen.digest): pa.ipc.read_schema(pa.py_buffer(seen.payload))
        for seen in journal.schemas()
    }
    for half in journal.waiting():
        if wanted.concerns(half.model) and _is_wanted(half, schemas, wanted, found):
            found.halves.append((half.model, half.key))
            found.add_ids(half.model, [_id_of(half)])
    named = {*wanted.subjects, *wanted.records, *found.all_ids}
    for note in journal.notes():
        if any(text in named for text in _texts(note.payload[_CHECKSUM_BYTES:])):
            found.notes.append(note.name)


def _is_wanted(
    half: Half, schemas: Mapping[tuple[str, str], pa.Schema], wanted: ErasureTarget, found: Found
) -> bool:
    if _id_of(half) in wanted.records or _id_of(half) in found.ids.get(half.model, ()):
        return True
    schema = schemas.get((half.model, half.digest))
    if half.side == DONE or schema is None or not wanted.subjects:
        return False
    try:
        table = pa.ipc.read_record_batch(pa.py_buffer(half.payload[_CHECKSUM_BYTES:]), schema)
    except (pa.ArrowException, OSError):
        return False
    return bool(_named(table, "entity", wanted.subjects).any())


def _id_of(half: Half) -> str:
    """Id of the record of a side, whose key begins with the scope of the id."""
    return half.key.rpartition(_SEPARATOR)[2]


def _texts(packed: bytes) -> Iterator[str]:
    try:
        found = msgspec.msgpack.decode(packed)
    except msgspec.DecodeError:
        return
    stack: list[Any] = [found]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            stack += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            stack += one
