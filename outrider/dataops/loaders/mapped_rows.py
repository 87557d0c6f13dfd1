"""Rows of a dataset version by position, in a mapped file."""

import mmap
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import ConfigError, NotFound, nearest
from outrider.parts import install_command

from .nested import nested_lists
from .placed_columns import PlacedColumn, placed_column

if TYPE_CHECKING:
    import pandas as pd

    from .torch_rows import RowStream, TorchRows

Values: TypeAlias = NDArray[Any] | list[Any]
"""Numbers, truth values, times and tensors as an array, anything else as a list."""


MAPPED_BYTES = 32 * 2**20
"""Approximate most bytes of mapped pages that stay in memory."""
_READ_BYTES = 65_536
"""Bytes that the kernel maps for a read at one place."""


class MappedRows:
    """Rows of one dataset version in a mapped file.

    Made by `outrider.open_dataset`. Other processes get the name of the file, not the rows.

    Parameters
    ----------
    id
        Name of the version and part, such as ``digits-flagged@2 train``.
    digest
        Of the version.
    path
        Arrow IPC stream of its rows.
    columns
        The only ones to read; all by default.
    """

    def __init__(self, id: str, digest: str, path: Path, columns: Sequence[str] | None = None) -> None:
        self.id, self.digest, self.path = id, digest, path
        self._columns = None if columns is None else tuple(columns)
        if self._columns is not None:
            there = self._mapped.schema.names
            for name in self._columns:
                if name not in there:
                    raise NotFound(f"{id} has no column {name[:80]!r}{nearest(name, there)}")

    def __repr__(self) -> str:
        return f"MappedRows({self.id!r}, {len(self)} rows)"

    def __len__(self) -> int:
        return int(self._mapped.num_rows)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("id", "digest", "path", "_columns")}

    @cached_property
    def _map(self) -> mmap.mmap:
        with self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def _file(self) -> pa.Buffer:
        return pa.py_buffer(self._map)

    @cached_property
    def _mapped(self) -> pa.Table:
        with pa.ipc.open_stream(self._file) as reader:
            return reader.read_all()

    @cached_property
    def table(self) -> pa.Table:
        """The rows as an Arrow table over the mapped file."""
        return self._mapped if self._columns is None else self._mapped.select(list(self._columns))

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self.table.column_names
        return names

    def batches(self, rows: int = 8192) -> Iterator[pa.RecordBatch]:
        """Rows in order, in batches of at most so many."""
        yield from self.table.to_batches(max_chunksize=rows)

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> dict[str, Values]:
        """Rows by their places, column by column, in the order asked for.

        Numbers with nulls become real numbers with NaN.

        Raises
        ------
        IndexError
            If a place is outside the rows.
        """
        index = np.asarray(places, np.int64).reshape(-1)
        count = len(self)
        index = np.where(index < 0, index + count, index)
        if len(index) and (index.min() < 0 or index.max() >= count):
            raise IndexError(f"{self.id} has {count} rows, got place {int(np.asarray(places).max())}")
        chunk = np.searchsorted(self._starts, index, side="right") - 1
        local = index - self._starts[chunk]
        found: dict[str, Values] = {}
        others = [name for name in self.columns if name not in self._placed]
        lists = self._others(others, chunk, local) if others else {}
        for name in self.columns:
            found[name] = self._placed[name].take(chunk, local) if name in self._placed else lists[name]
        return found

    def gather(self, places: NDArray[np.int64]) -> pa.Table:
        """Rows in the order of ``places``, in bounded memory."""
        chunk = np.searchsorted(self._starts, places, side="right") - 1
        order = np.argsort(places, kind="stable")  # pages of the file are read once, in order
        ends = np.searchsorted(places[order], [*self._starts[1:], len(self)])
        parts = [self.table.slice(0, 0)]
        is_large = self.file_bytes > MAPPED_BYTES
        step = MAPPED_BYTES // _READ_BYTES if is_large else max(1, len(order))
        for each in np.unique(chunk).tolist():
            whole = order[(ends[each - 1] if each else 0) : ends[each]]
            for start in range(0, len(whole), step):
                mine = whole[start : start + step]
                rows = self._batches[each].take(pa.array(places[mine] - self._starts[each]))
                parts.append(pa.Table.from_batches([rows]))
                if is_large:
                    self.release()
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables(parts).combine_chunks().take(pa.array(back))

    @property
    def file_bytes(self) -> int:
        return len(self._map)

    def release(self) -> None:
        """Return mapped pages to the system until the next read."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def to_pandas(self) -> "pd.DataFrame":
        """All rows as a frame; times are UTC."""
        from .frames import frame_of

        return frame_of(Batch.from_arrow(self.table, model="")).filter(self.columns)

    def to_torch(self) -> "TorchRows":
        """Map-style ``torch.utils.data.Dataset``: a row, or a list of rows, by place."""
        from .torch_rows import TorchRows

        return TorchRows(self)

    def to_stream(
        self, *, batch_rows: int, seed: int = 0, shuffle: bool = True, rank: int = 0, ranks: int = 1
    ) -> "RowStream":
        """Shuffled, resumable ``torch.utils.data.IterableDataset`` of batches.

        Parameters
        ----------
        batch_rows
            Rows of a batch on each rank; the last of an epoch may have fewer.
        seed
            Of the order, with the number of the epoch.
        rank, ranks
            This process among those that share the rows. All have as many: fewer than ``ranks`` rows, other
            ones in each epoch, are left out where the division has a remainder.
        """
        from .torch_rows import RowStream

        return RowStream(self, batch_rows=batch_rows, seed=seed, shuffle=shuffle, rank=rank, ranks=ranks)

    def to_hf(self) -> Any:
        """`datasets.Dataset` of Hugging Face over the mapped file; tensors are nested lists.

        Raises
        ------
        ConfigError
            If ``datasets`` is not installed.
        """
        try:
            from datasets import Dataset
        except ImportError as error:
            raise ConfigError(f"to_hf() needs Hugging Face datasets: {install_command(['hf'])}") from error
        columns = {
            name: pa.chunked_array([nested_lists(chunk) for chunk in self.table.column(name).chunks])
            for name in self.columns
        }
        return Dataset(pa.table(columns))

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        counts = [batch.num_rows for batch in self._mapped.to_batches()]
        return np.cumsum([0, *counts[:-1]], dtype=np.int64)

    @cached_property
    def _batches(self) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = self.table.to_batches()
        return found

    @cached_property
    def _placed(self) -> dict[str, PlacedColumn]:
        found = {}
        for field in self.table.schema:
            chunks = [batch.column(field.name) for batch in self._batches]
            if (column := placed_column(self._file, field.type, chunks)) is not None:
                found[field.name] = column
        return found

    def _others(
        self, names: Sequence[str], chunk: NDArray[np.int64], local: NDArray[np.int64]
    ) -> dict[str, list[Any]]:
        order = np.argsort(chunk, kind="stable")
        parts = []
        for each in np.unique(chunk):
            mine = order[chunk[order] == each]
            parts.append(self._batches[each].select(list(names)).take(pa.array(local[mine])))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        schema = pa.schema([self.table.schema.field(name) for name in names])
        table = pa.Table.from_batches(parts, schema)
        values = {name: table.column(name).to_pylist() for name in names}
        return {name: [column[at] for at in back] for name, column in values.items()}
