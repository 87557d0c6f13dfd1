"""Tables in files, for ``outrider dataset``."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from outrider.assertions.columns import from_values
from outrider.errors import ConfigError


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


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet."""
    pyarrow.parquet.write_table(table, path, compression="zstd")
