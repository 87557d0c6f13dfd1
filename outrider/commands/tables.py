"""Tables in files, for ``outrider dataset``."""

import io
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from outrider.assertions.columns import from_values, plain
from outrider.errors import ConfigError

from .export import without_formulas


def read_table(path: Path) -> pa.Table:
    """Table of a Parquet, Arrow (Feather), CSV or NPZ file.

    Arrays of an NPZ are columns.

    Raises
    ------
    ConfigError
        If the file cannot be read as what its ending says.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return pa.table({name: from_values(arrays[name]) for name in arrays.files})
        if path.suffix == ".csv":
            return pyarrow.csv.read_csv(path)
        if path.suffix in (".arrow", ".feather"):
            return pyarrow.feather.read_table(path)
        return pyarrow.parquet.read_table(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: Parquet, Arrow, CSV or NPZ expected, by its ending: {error}") from error


def to_ipc(table: pa.Table) -> bytes:
    """Arrow IPC stream of a table."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_ipc(data: bytes) -> pa.Table:
    """Table of an Arrow IPC stream."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def write_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write batches by the ending of the file's name; count rows.

    Parquet keeps types; CSV and JSON lines have values that JSON can carry, lists in CSV as JSON.
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
