"""Rows of dataset versions as mapped files with label sources."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from sqlalchemy import Connection, or_, select

from outrider.dataops.datasets.scan import Scan, ipc_stream, scan
from outrider.dataops.datasets.versions import Version
from outrider.dataops.loaders.arrow_cache import CachedRows, cached
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.improvement_tables import DatasetRow
from outrider.dataops.state.tables import table_of
from outrider.errors import OutriderError

_ROW = table_of(DatasetRow)

LABEL_SOURCE = "attrs.outrider_label_source"
"""Source of each row's label: ``human``, ``weak:`` and assertions, or the sender of a table."""
_BATCH_ROWS = 65_536


def dataset_rows(
    connection: Connection, objects: ObjectStore, version: Version, *, part: str | None, cache: Path
) -> MappedRows:
    found = scan(connection, objects, version, part=part, batch_rows=_BATCH_ROWS)
    schema = found.schema.append(pa.field(LABEL_SOURCE, pa.string()))

    def write(file: BinaryIO) -> None:
        sources = _sources(connection, version, part)
        file.writelines(ipc_stream(schema, _with_sources(found, sources, schema)))

    name = CachedRows(version.dataset, version.number, version.digest, part, [LABEL_SOURCE]).name
    title = version.id + (f" {part}" if part else "")
    return MappedRows(title, version.digest, cached(cache, name, write))


def _sources(connection: Connection, version: Version, part: str | None) -> Iterator[tuple[str, str | None]]:
    """Id and label source of each row, in the order of its file."""
    number = version.number
    is_there = _ROW.c.number <= number, or_(_ROW.c.removed.is_(None), _ROW.c.removed > number)
    query = select(_ROW.c.record_id, _ROW.c.label_source).where(_ROW.c.dataset == version.dataset, *is_there)
    if part is not None:
        query = query.where(_ROW.c.part == part)
    for key, source in connection.execute(query.order_by(_ROW.c.file, _ROW.c.position)):
        yield str(key), source


def _with_sources(
    rows: Scan, sources: Iterator[tuple[str, str | None]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        of_batch = [next(sources, ("", None)) for _ in range(batch.num_rows)]
        if batch.column("id").to_pylist() != [key for key, _ in of_batch]:
            raise OutriderError(f"{rows.version.id}: its rows changed while they were read; try again")
        column = pa.array([source for _, source in of_batch], pa.string())
        yield pa.RecordBatch.from_arrays([*batch.columns, column], schema=schema)
