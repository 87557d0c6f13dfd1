"""Rows of entities, found in the files of all datasets."""

from collections import defaultdict
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlalchemy import Connection, Engine, select

from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.improvement_tables import DatasetRowFile, DatasetVersion, Job
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound

from .plan import sent_tables

_COLUMNS = ("id", "entity")
_FILE, _VERSION, _JOB = table_of(DatasetRowFile), table_of(DatasetVersion), table_of(Job)


def rows_of_entities(engine: Engine, store: ObjectStore, entities: Collection[str]) -> dict[str, list[str]]:
    """Ids of rows of some entities by model, sorted.

    Of imported tables too, whose rows no journal ever had, and of sent tables that were refused.
    """
    wanted = pa.array(sorted(entities), pa.string())
    found: dict[str, set[str]] = defaultdict(set)
    with engine.connect() as connection:
        for model, digest in _files(connection):
            table = _columns(store, digest, is_file=True)
            found[model] |= _of(table, wanted)
        models = {job.id: job.model for job in connection.execute(select(_JOB.c.id, _JOB.c.model))}
        for job, digest in sent_tables(connection, None).items():
            table = _columns(store, digest, is_file=False)
            found[models[job]] |= _of(table, wanted)
    return {model: sorted(ids) for model, ids in sorted(found.items()) if ids}


def _files(connection: Connection) -> set[tuple[str, str]]:
    """Model and content of every row file."""
    joined = _FILE.join(_VERSION, _VERSION.c.dataset == _FILE.c.dataset)
    query = select(_VERSION.c.model, _FILE.c.sha256).select_from(joined).distinct()
    return {(model, digest) for model, digest in connection.execute(query)}


def _columns(store: ObjectStore, digest: str, *, is_file: bool) -> pa.Table | None:
    """Ids and entities of a file; None where it has none, or is lost."""
    try:
        data = pa.py_buffer(store.mapped(digest))
    except NotFound:
        return None
    if is_file:
        file = pq.ParquetFile(pa.BufferReader(data))
        has_both = {*_COLUMNS} <= {*file.schema_arrow.names}
        return file.read([*_COLUMNS]) if has_both else None
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    return table.select([*_COLUMNS]) if {*_COLUMNS} <= {*table.column_names} else None


def _of(table: pa.Table | None, entities: pa.Array) -> set[str]:
    if table is None:
        return set()
    ids, names = (table.column(name).cast(pa.string()) for name in _COLUMNS)
    return set(ids.filter(pc.is_in(names, entities)).drop_null().to_pylist())
