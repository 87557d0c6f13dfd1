"""Single records, for assertions that are functions of one record."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .batch import Batch
from .columns import is_tensor


class RecordMapping(Mapping[str, Any]):
    """Record as a read-only mapping of full column names to values.

    Numbers, texts and times are Python objects, a null is None, a tensor is a read-only numpy array.
    """

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: "Columns", row: int) -> None:
        self._columns = columns
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._row]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.batch.names)

    def __len__(self) -> int:
        return len(self._columns.batch.names)


class Columns(dict[str, Any]):
    """Columns of a batch as Python values, converted at the first read."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.batch = batch

    def __missing__(self, name: str) -> Any:
        column = self.batch.arrow(name) if self.batch.has(name) else None
        if column is None:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.batch.names)}")
        if is_tensor(column.type):
            null = self.batch.is_null(name)
            tensors = self.batch.tensor(name, 0)
            values: list[Any] = [None if absent else t for t, absent in zip(tensors, null, strict=True)]
        else:
            plain = column.null_count == 0 and self.batch.column(name).dtype.kind in "biuf"
            values = np.asarray(self.batch.column(name)).tolist() if plain else column.to_pylist()
        self[name] = values
        return values


def records(batch: Batch) -> Iterator[RecordMapping]:
    """Iterate over the records of a batch."""
    columns = Columns(batch)
    return (RecordMapping(columns, row) for row in range(batch.rows))
