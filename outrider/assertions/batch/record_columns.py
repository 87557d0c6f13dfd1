"""Columns of records, read by name as numpy, Arrow or pandas."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.windows.group import Group
from outrider.assertions.windows.window import Window

from .columns import entity_codes, is_tensor, plain, row_hashes, to_numpy, to_tensor
from .schema import REST, schema_digest

if TYPE_CHECKING:
    import pandas as pd

EVERYTHING = "*"
"""Name recorded for reads of whole records (``*``), or of a whole part (``inputs.*``)."""


class RecordColumns:
    """Columns of one model's records, and the marks of a window view.

    Base class of :class:`Batch` with all methods that read.
    """

    __slots__ = ("_cache", "_is_last", "_is_new", "_reads", "_runs", "_shared", "_table", "_window", "model")

    def __init__(self, table: pa.RecordBatch, *, model: str) -> None:
        self._table = table
        self.model = model
        self._cache: dict[str, Any] = {}
        self._shared: dict[str, NDArray[Any]] = {}
        self._reads: set[str] | None = None
        """Set that collects the names of the columns that are read; None: not recorded."""
        self._is_new: NDArray[np.bool_] | None = None
        self._is_last: NDArray[np.bool_] | None = None
        self._window: Window | Group | None = None
        self._runs: NDArray[np.int64] | None = None

    def to_ipc(self) -> bytes:
        """Arrow IPC stream of one record batch. The schema's metadata names the model."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_batch(self._table)
        payload: bytes = sink.getvalue().to_pybytes()
        return payload

    def to_arrow(self) -> pa.RecordBatch:
        """The columns as an Arrow record batch."""
        if self._reads is not None:
            self._reads.add(EVERYTHING)
        return self._table

    def to_pandas(self) -> "pd.DataFrame":
        """Columns by full name as a frame. Tensors become one numpy array per row."""
        import pandas as pd

        if self._reads is not None:
            self._reads.add(EVERYTHING)
        return pd.DataFrame({name: self._values(name) for name in self.names})

    def to_records(self) -> list[dict[str, Any]]:
        """Records as nested dictionaries that JSON can carry.

        :meth:`Batch.from_records` reads them. Nulls, NaN and infinities are left out; inside a tensor they
        become None.
        """
        columns = {name: plain(self.arrow(name), name) for name in self.names}
        records: list[dict[str, Any]] = []
        for row in range(self.rows):
            record: dict[str, Any] = {"model": self.model}
            for name, values in columns.items():
                if values[row] is None:
                    continue
                part, _, field = name.partition(".")
                if field:
                    record.setdefault(part, {})[field] = values[row]
                else:
                    record[name] = values[row]
            records.append(record)
        return records

    @property
    def rows(self) -> int:
        """Number of records."""
        return int(self._table.num_rows)

    def __len__(self) -> int:
        return self.rows

    @property
    def names(self) -> list[str]:
        """Full column names, system columns first."""
        return list(self._table.schema.names)

    def has(self, name: str) -> bool:
        """True if the batch has a column of that full name."""
        if self._reads is not None:
            self._reads.add(name)
        return name in self._table.schema.names

    @property
    def schema_digest(self) -> str:
        """Twelve hex digits that are equal for equal column names and types."""
        return schema_digest(self._table.schema)

    @property
    def keys(self) -> NDArray[np.object_]:
        """Record ids, shape (rows,)."""
        return self.column("id")

    def column(self, name: str, null: object = ...) -> NDArray[Any]:
        """Read-only numpy values of a column, cached.

        Parameters
        ----------
        name
            Full name, such as ``inputs.age``.
        null
            Replacement for nulls. Without it float columns show NaN, text columns None, and integer or
            boolean columns with nulls raise ValueError.

        Raises
        ------
        KeyError
            If there is no such column; the message lists the columns.
        """
        key = name if null is ... else f"{name}\0{null!r}"
        values: NDArray[Any] | None = self._cache.get(key)
        if values is None:
            if self._reads is not None:
                self._reads.add(name)
            values = self._shared.get(key)
            if values is None:
                values = to_numpy(self.arrow(name), name, null)
                if values.dtype != object:  # nothing in it can be changed
                    self._shared[key] = values
            self._cache[key] = values
        return values

    def arrow(self, name: str) -> pa.Array:
        """One column as an Arrow array."""
        if self._reads is not None:
            self._reads.add(name)
        index = self._table.schema.get_field_index(name)
        if index < 0:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.names)}")
        return self._table.column(index)

    def field(self, name: str) -> NDArray[np.object_]:
        """Values of a field, also of one without its own column.

        A model has a limited number of columns; fields beyond them share the JSON column ``attrs.__rest__``
        (or ``inputs.``, ``outputs.``, ``label.``). None if there is no value.

        Examples
        --------
        >>> from outrider.assertions import Batch
        >>> columns = {"attrs.note": [None, "a"], "attrs.__rest__": ['{"note": "b"}', None]}
        >>> Batch.from_columns(columns, model="m").field("attrs.note").tolist()
        ['b', 'a']
        """
        part, _, field = name.partition(".")
        found = np.empty(self.rows, dtype=object)
        if self.has(f"{part}.{REST}"):
            found[:] = [_member(text, field) for text in self.arrow(f"{part}.{REST}").to_pylist()]
        if self.has(name):
            present = np.flatnonzero(~self.is_null(name))
            values = plain(self.arrow(name), name)
            for row in present:
                found[row] = values[row]
        found.flags.writeable = False
        return found

    def tensor(self, name: str, null: object = ...) -> NDArray[Any]:
        """Read-only view of a tensor column, shape (rows, …)."""
        return to_tensor(self.arrow(name), name, null)

    def is_null(self, name: str) -> NDArray[np.bool_]:
        """Mask of the records without a value, shape (rows,)."""
        mask: NDArray[np.bool_] = self.arrow(name).is_null().to_numpy(zero_copy_only=False)
        return mask

    @property
    def by_replica(self) -> NDArray[np.bool_]:
        """Mask (rows,) of answers by a replica, where production gave none."""
        if not self.has("by_replica"):
            return np.zeros(self.rows, dtype=np.bool_)
        return self.column("by_replica", null=False)

    @property
    def inputs(self) -> "pd.DataFrame":
        """Columns ``inputs.*`` as a frame that may be changed (copy on write)."""
        return self._frame("inputs")

    @property
    def outputs(self) -> "pd.DataFrame":
        """Columns ``outputs.*`` as a frame."""
        return self._frame("outputs")

    @property
    def labels(self) -> "pd.DataFrame":
        """Columns ``label.*`` as a frame."""
        return self._frame("label")

    @property
    def attrs(self) -> "pd.DataFrame":
        """Columns ``attrs.*`` as a frame."""
        return self._frame("attrs")

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Mask (rows,) of the records to judge. False for context rows of a window."""
        return np.ones(self.rows, dtype=np.bool_) if self._is_new is None else self._is_new

    @property
    def has_context(self) -> bool:
        """True for window views, where ``is_new`` marks the rows to judge."""
        return self._is_new is not None

    @property
    def is_last(self) -> NDArray[np.bool_]:
        """Mask (rows,) of the last record of each entity or group."""
        return np.zeros(self.rows, dtype=np.bool_) if self._is_last is None else self._is_last

    def previous_rows(self, steps: int = 1) -> NDArray[np.intp]:
        """Row of the same entity's record ``steps`` earlier, shape (rows,).

        -1 if there is none. In a view the entity is the window's column ``by``, and records outside the
        window's ``rows`` or ``seconds`` count as absent; otherwise the entity is the column ``entity``.
        Records without an entity have no earlier one.
        """
        if steps < 1:
            raise ValueError(f"steps must be >= 1, got {steps}")
        key = f"previous\0{steps}"
        if key not in self._cache:
            self._cache[key] = self._within_reach(_earlier(self._run_codes(), steps), steps)
        rows: NDArray[np.intp] = self._cache[key]
        return rows

    def previous(self, name: str, steps: int = 1, null: object = ...) -> NDArray[Any]:
        """Value of a column in the same entity's record ``steps`` earlier.

        Parameters
        ----------
        null
            Value if there is no such record, or it holds a null. Without it floats show NaN, texts None and
            times NaT; integer and boolean columns raise ValueError.

        Examples
        --------
        >>> from outrider.assertions import Batch
        >>> frames = {"entity": ["a", "b", "a"], "outputs.label": [1, 2, 3]}
        >>> Batch.from_columns(frames, model="m").previous("outputs.label", null=-1)
        array([-1, -1,  1])
        """
        rows = self.previous_rows(steps)
        column = self.arrow(name)
        if column.type == pa.null() or is_tensor(column.type):
            values = self.column(name, null)
        elif null is ... and column.null_count == 0 and (rows >= 0).all():
            values = self.column(name)
        else:
            index = pa.array(rows, mask=rows < 0)
            return to_numpy(column.take(index), f"the record before of {name}", null)
        found = values[rows]
        if (rows < 0).any():
            if found.dtype.kind in "biu" and null is ...:
                raise ValueError(f"previous({name!r}) has rows without a record before; pass null=")
            found[rows < 0] = np.nan if null is ... else null
        found.flags.writeable = False
        return found

    def groups(self, name: str) -> Iterator[tuple[Any, NDArray[np.intp]]]:
        """Distinct values of a column in order, each with its row numbers.

        Null is a value too (None). In a view, records without an entity are one group each if the column
        names the entity.
        """
        import pandas as pd

        given = self._values(name)
        if self._window is not None and name == self._window.by:
            codes, values = pd.factorize(self._run_codes())
            values = given[np.unique(codes, return_index=True)[1]]
        else:
            codes, values = pd.factorize(given, use_na_sentinel=False)
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(values)))
        for value, rows in zip(values, np.split(order, starts[1:]), strict=True) if len(values) else ():
            yield (None if pd.isna(value) else value), rows

    def content_digests(self) -> NDArray[np.uint64]:
        """Hash (uint64) per record of its content, shape (rows,).

        Equal if the same record is sent again, even in a block of another schema: ``id``, ``received``, and a
        ``ts`` that was only the time of receipt are left out.
        """
        total = np.zeros(self.rows, dtype=np.uint64)
        for name in self.names:
            if name in ("id", "received"):
                continue
            hashes = row_hashes(self.arrow(name), name)
            if name == "ts":
                hashes = np.where(self.column("ts") == self.column("received"), np.uint64(0), hashes)
            total += hashes
        return total

    def _within_reach(self, rows: NDArray[np.intp], steps: int) -> NDArray[np.intp]:
        """``rows``, with -1 for rows outside the reach of the window."""
        if not isinstance(self._window, Window):
            return rows
        if steps >= self._window.capacity:
            rows = np.full(self.rows, -1, dtype=np.intp)
        elif self._window.seconds is not None:
            ts = self.column("ts").astype("datetime64[us]").astype(np.int64)
            rows = np.where(ts - ts[rows] > round(self._window.seconds * 1e6), -1, rows)
        rows.flags.writeable = False
        return rows

    def _run_codes(self) -> NDArray[np.int64]:
        """Entity index of each row; each record without an entity gets an index of its own."""
        if self._runs is not None:
            return self._runs
        by = "entity" if self._window is None else self._window.by
        if not self.has(by):
            return np.arange(self.rows)
        codes, _ = entity_codes(self.arrow(by))
        alone = np.flatnonzero(codes < 0)
        codes[alone] = self.rows + alone
        return codes

    def _values(self, name: str) -> Any:
        column = self.arrow(name)
        if is_tensor(column.type):
            null = column.is_null().to_numpy(zero_copy_only=False)
            tensors = to_tensor(column, name, 0)
            values = np.empty(len(tensors), dtype=object)
            values[:] = [None if absent else tensor for tensor, absent in zip(tensors, null, strict=True)]
            return values
        if pa.types.is_string(column.type):
            return to_numpy(column, name)
        return column.to_pandas().array if column.null_count else to_numpy(column, name)

    def _frame(self, part: str) -> "pd.DataFrame":
        import pandas as pd

        key = f"{part}\0frame"
        if key not in self._cache:
            reads, self._reads = self._reads, None  # which of them are used is unknown
            if reads is not None:
                reads.add(f"{part}.{EVERYTHING}")
            names = [name for name in self.names if name.startswith(f"{part}.")]
            self._cache[key] = pd.DataFrame(
                {name.removeprefix(f"{part}."): self._values(name) for name in names},
                index=pd.RangeIndex(self.rows),
            )
            self._reads = reads
        frame: pd.DataFrame = self._cache[key]
        return frame.copy(deep=False)  # copy on write: changing it never changes the batch


def _earlier(codes: NDArray[np.int64], steps: int) -> NDArray[np.intp]:
    """Row with the same code, ``steps`` earlier; -1 if there is none."""
    order = np.arange(len(codes))
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    rows = np.full(len(codes), -1, dtype=np.intp)
    same = sorted_codes[steps:] == sorted_codes[:-steps]
    rows[order[steps:][same]] = order[:-steps][same]
    return rows


def _member(text: str | None, field: str) -> Any:
    """Value of a field of a JSON object; None if absent."""
    try:
        found = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None  # a sender may put any text there
    return found.get(field) if isinstance(found, dict) else None
