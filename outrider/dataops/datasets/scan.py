"""Scans of versions: batches by column and part, in bounded memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO

import pyarrow as pa
from sqlalchemy import Connection, Engine

from outrider.dataops.payloads.objects import ObjectStore
from outrider.errors import NotFound, nearest

from .stored_rows import VersionRows
from .versions import Version, content, stored_rows

BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class Scan:
    """Repeatable and without a connection: raises ``Erased`` if rows are erased meanwhile."""

    version: Version
    schema: pa.Schema
    rows: int
    _engine: Engine = field(repr=False)
    _objects: ObjectStore = field(repr=False)
    _stored: Sequence[VersionRows] = field(repr=False)
    _batch_rows: int = BATCH_ROWS

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Non-empty batches in the order of :func:`~outrider.dataops.datasets.versions.read`."""
        for stored in self._stored:
            data = content(self._engine, self._objects, self.version, stored.sha256)
            for table in stored.pieces(data, self.schema, self._batch_rows):
                yield from table.combine_chunks().to_batches()


def scan(
    connection: Connection,
    objects: ObjectStore,
    version: Version,
    *,
    part: str | None = None,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Scan:
    """``columns`` in this order; all by default."""
    schema = version.schema
    if columns is not None:
        for name in columns:
            if name not in schema.names:
                raise NotFound(f"{version.id} has no column {name[:80]!r}{nearest(name, schema.names)}")
        chosen = dict.fromkeys(columns)
        schema = pa.schema([schema.field(name) for name in chosen], metadata=schema.metadata)
    stored = stored_rows(connection, version, part=part)
    rows = sum(file.living for file in stored)
    return Scan(version, schema, rows, connection.engine, objects, stored, batch_rows)


def ipc_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Truncated if a batch cannot be read."""
    sink = BytesIO()
    writer = pa.ipc.new_stream(sink, schema)
    for batch in batches:
        writer.write_batch(batch)
        yield _taken(sink)
    writer.close()
    yield _taken(sink)


def _taken(sink: BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
