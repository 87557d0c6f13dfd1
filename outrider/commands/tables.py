"""Tables of commands: read from files, sent, and written to files."""

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import typer

from outrider.assertions.batch.columns import plain
from outrider.data_files import LeftOut, TableOptions
from outrider.data_files import read_table as read_file

from .export import without_formulas


def read_table(path: Path, options: TableOptions = TableOptions(times=True)) -> pa.Table:  # noqa: B008 - frozen
    """Table of a file. Columns and rows left out are named on stderr."""
    left = LeftOut()
    try:
        return read_file(path, options, left)
    finally:
        for sentence in left.sentences(path):
            typer.echo(f"outrider: {sentence}", err=True)


def table_options(
    delimiter: str | None, decimal: str = ".", text: Sequence[str] | None = None, *, named: Iterable[str] = ()
) -> TableOptions:
    """Options of the command line about tables, for :func:`read_table`."""
    mark = "\t" if delimiter in ("tab", "\\t") else delimiter
    if mark is not None and len(mark) != 1:
        raise typer.BadParameter(f"--delimiter: one letter or tab expected, got {delimiter!r}")
    if decimal not in (".", ","):
        raise typer.BadParameter(f"--decimal: '.' or ',' expected, got {decimal!r}")
    texts = tuple(name for one in text or () for name in one.split(",") if name)
    return TableOptions(mark, decimal, texts, frozenset(named), times=True)


def to_ipc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_ipc(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def write_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write batches by the file's extension; return the number of rows.

    CSV holds lists as JSON.
    """
    rows = 0
    if path.suffix == ".parquet":
        with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return rows
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            _frame(schema.empty_table()).to_csv(file, index=False)
        for batch in batches:
            if path.suffix == ".csv":
                without_formulas(_frame(batch).map(_as_json)).to_csv(file, index=False, header=False)
            else:
                _frame(batch).to_json(file, orient="records", lines=True)
            rows += batch.num_rows
    return rows


def _frame(rows: pa.RecordBatch | pa.Table) -> pd.DataFrame:
    columns = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
    return pd.DataFrame(
        {
            name: pd.Series(plain(columns.column(name).combine_chunks(), name), dtype=object)
            for name in columns.column_names
        }
    )


def _as_json(value: object) -> object:
    return json.dumps(value) if isinstance(value, list | dict) else value
