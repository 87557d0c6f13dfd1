"""Tables of Parquet, Arrow, Feather and NPZ files, part by part."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from outrider.assertions.columns import from_values

from .left_out import LeftOut
from .opening import kept_columns
from .plain_types import beyond_int64, is_unsigned, plain_columns
from .table_options import TableOptions

Parts = Iterator[tuple[pa.Table, float]]
"""Rows, and how much of the file is read with them."""


def table_parts(path: Path, ending: str, how: TableOptions, left: LeftOut, *, rows: int) -> Parts:
    """Parts of a file in plain types.

    A file without a row has one without a row.
    """
    if ending == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            yield _plain(pa.table({n: from_values(arrays[n]) for n in arrays.files}), how, left, set()), 1.0
        return
    opener = _parquet if ending == ".parquet" else _arrow
    with opener(path, rows) as (schema, read):
        kept_columns(schema.names, left, named=how.named)
        wide = [field.name for field in schema if is_unsigned(field.type)]
        large = {name for name in wide if any(beyond_int64(part.column(name)) for part, _ in read([name]))}
        done = 0
        for batch, share in read(None):
            for start in range(0, batch.num_rows, rows):
                part = pa.Table.from_batches([batch.slice(start, rows)])
                done += len(part)
                yield _plain(part, how, left, large), share
        if not done:
            yield pa.table({name: pa.nulls(0) for name in schema.names}), 1.0


def _plain(table: pa.Table, how: TableOptions, left: LeftOut, large: set[str]) -> pa.Table:
    kept = table.select(kept_columns(table.column_names, left, named=how.named))
    found = plain_columns(kept, left, as_text=large)
    return found if found.num_columns else pa.table({"id": pa.nulls(len(table), pa.string())})


@contextmanager
def _parquet(path: Path, rows: int) -> Any:
    with pa.parquet.ParquetFile(path) as file:
        total = max(1, file.metadata.num_rows)
        leaves = [file.schema.column(at) for at in range(len(file.schema))]
        spans = {leaf.path for leaf in leaves if leaf.converted_type == "INTERVAL"}

        def read(columns: list[str] | None) -> Iterator[tuple[pa.RecordBatch, float]]:
            done = 0
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                done += batch.num_rows
                yield _with_spans(batch, spans), done / total

        yield file.schema_arrow, read


def _with_spans(rows: Any, spans: set[str]) -> Any:
    """Intervals of Parquet, which Arrow reads as bytes, as what they are."""
    for name in spans.intersection(rows.schema.names):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, pa.nulls(rows.num_rows, pa.month_day_nano_interval()))
    return rows


@contextmanager
def _arrow(path: Path, _rows: int) -> Any:
    """File or stream of Arrow; Feather of version 2 is the file format."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    with pa.memory_map(str(path)) as source:

        def read(columns: list[str] | None) -> Iterator[tuple[pa.RecordBatch, float]]:
            for batch, share in _of_file(source) if is_file else _of_stream(source):
                yield (batch if columns is None else batch.select(columns)), share

        opener = pa.ipc.open_file if is_file else pa.ipc.open_stream
        with opener(source) as reader:
            schema = reader.schema
        yield schema, read


def _of_file(source: pa.MemoryMappedFile) -> Iterator[tuple[pa.RecordBatch, float]]:
    source.seek(0)
    with pa.ipc.open_file(source) as reader:
        for at in range(reader.num_record_batches):
            yield reader.get_batch(at), (at + 1) / reader.num_record_batches


def _of_stream(source: pa.MemoryMappedFile) -> Iterator[tuple[pa.RecordBatch, float]]:
    source.seek(0)
    with pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield batch, min(1.0, source.tell() / max(1, source.size()))
