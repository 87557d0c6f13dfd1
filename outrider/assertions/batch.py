"""Batch: immutable, columnar records of one model.

The type that crosses borders.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from outrider.errors import SchemaMismatch

from .columns import (
    ArrayLike,
    entity_codes,
    from_values,
    is_tensor,
    plain,
    row_hashes,
    series_values,
    to_numpy,
    to_tensor,
)
from .group import Group
from .window import Window

if TYPE_CHECKING:
    from .elements import Elements

TIME = pa.timestamp("us", tz="UTC")
SYSTEM: dict[str, pa.DataType] = {
    "id": pa.string(),
    "ts": TIME,
    "received": TIME,
    "version": pa.string(),
    "entity": pa.string(),
    "seq": pa.int64(),
    "weight": pa.float64(),
    "partial": pa.bool_(),
}
MARKS: dict[str, pa.DataType] = {"by_replica": pa.bool_()}
"""System columns that only some batches have."""
PARTS = ("inputs", "outputs", "label", "attrs")
REST = "__rest__"
"""Field of each part that holds its rare fields, as one JSON object."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MODEL = b"outrider.model"


class Batch:
    """Records of one model with one schema, as columns.

    Never changed, only derived from.

    Columns are ``id ts received version entity seq weight partial`` and, flat, ``inputs.<name>``,
    ``outputs.<name>``, ``label.<name>``, ``attrs.<name>``. Build one with :meth:`from_records`,
    :meth:`from_pandas` or :meth:`from_arrow`.

    Examples
    --------
    >>> record = {"id": "a", "inputs": {"age": 41}, "outputs": {"score": 0.9}}
    >>> batch = Batch.from_records([record], model="churn")
    >>> batch.rows, batch.column("inputs.age")
    (1, array([41]))
    """

    __slots__ = (
        "_answers",
        "_cache",
        "_is_last",
        "_is_new",
        "_runs",
        "_shared",
        "_table",
        "_window",
        "model",
    )

    def __init__(self, table: pa.RecordBatch, *, model: str) -> None:
        self._table = table
        self.model = model
        self._cache: dict[str, Any] = {}
        self._shared: dict[str, NDArray[Any]] = {}
        self._answers: dict[str, Batch] = {}
        self._is_new: NDArray[np.bool_] | None = None
        self._is_last: NDArray[np.bool_] | None = None
        self._window: Window | Group | None = None
        self._runs: NDArray[np.int64] | None = None

    # ---- borders ---------------------------------------------------------------------------------------

    @classmethod
    def from_records(
        cls, records: Sequence[Mapping[str, Any]], *, model: str, received: datetime | None = None
    ) -> "Batch":
        """Batch of nested dictionaries as in ``POST /v1/records``.

        A missing ``id`` becomes the row number, a missing ``ts`` the time of receipt.

        Raises
        ------
        SchemaMismatch
            Naming the column whose values have no common type.
        """
        columns: dict[str, Any] = {}
        for name in SYSTEM:
            values = [record.get(name) for record in records]
            if name == "received" or any(value is not None for value in values):
                columns[name] = values
        if "id" in columns:
            columns["id"] = [str(row) if value is None else value for row, value in enumerate(columns["id"])]
        columns["received"] = pa.repeat(pa.scalar(received or EPOCH, TIME), len(records))
        if "ts" in columns:
            columns["ts"] = [_time(value, received or EPOCH) for value in columns["ts"]]
        for part in PARTS:
            parts = [record.get(part) or {} for record in records]
            for field in dict.fromkeys(field for values in parts for field in values):
                columns[f"{part}.{field}"] = [values.get(field) for values in parts]
        return cls.from_columns(columns, model=model, rows=len(records))

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, ArrayLike], *, model: str, rows: int | None = None
    ) -> "Batch":
        """Batch of full column names.

        System columns that are missing get their defaults.
        """
        if rows is None:
            rows = len(next(iter(columns.values()))) if columns else 0
        arrays = {}
        for name, values in columns.items():
            try:
                array = from_values(values)
                kind = SYSTEM.get(name) or MARKS.get(name)
                arrays[name] = array if kind is None or array.type == kind else array.cast(kind)
            except (pa.ArrowException, ValueError, TypeError) as error:
                raise SchemaMismatch(name, f"values of one type expected; {error}") from error
            if len(arrays[name]) != rows:
                raise SchemaMismatch(name, f"{rows} values expected, one per record, got {len(arrays[name])}")
        return cls(_canonical(arrays, rows, model), model=model)

    @classmethod
    def from_pandas(
        cls,
        frame: pd.DataFrame,
        *,
        model: str,
        inputs: Sequence[str],
        outputs: Sequence[str] = (),
        labels: Sequence[str] = (),
        attrs: Sequence[str] = (),
        id: str | None = None,
        entity: str | None = None,
        ts: str | None = None,
        version: str | None = None,
    ) -> "Batch":
        """Batch of a frame's columns.

        ``id``, ``entity``, ``ts`` and ``version`` name columns of it.

        Raises
        ------
        KeyError
            If the frame lacks a named column.
        """
        columns: dict[str, Any] = {}
        for name, source in (("id", id), ("entity", entity), ("ts", ts), ("version", version)):
            if source is not None:
                columns[name] = series_values(frame[source], text=name != "ts")
        for part, names in zip(PARTS, (inputs, outputs, labels, attrs), strict=True):
            columns |= {f"{part}.{name}": series_values(frame[name]) for name in names}
        return cls.from_columns(columns, model=model, rows=len(frame))

    @classmethod
    def from_arrow(cls, table: pa.RecordBatch | pa.Table, *, model: str | None = None) -> "Batch":
        """Batch of Arrow data with full column names.

        ``model`` defaults to the schema's metadata.
        """
        model = model or (table.schema.metadata or {}).get(_MODEL, b"").decode()
        if not model:
            raise ValueError("model= is needed: the Arrow schema carries no 'outrider.model' metadata")
        system = {*SYSTEM, *MARKS}
        unknown = [name for name in table.column_names if name not in system and not _is_part(name)]
        if unknown:
            raise SchemaMismatch(unknown[0], f"expected one of {', '.join(SYSTEM)} or inputs.*, outputs.*, …")
        columns = {name: table.column(name) for name in table.column_names}
        return cls.from_columns(columns, model=model, rows=table.num_rows)

    @classmethod
    def from_ipc(cls, payload: bytes | pa.Buffer) -> "Batch":
        """Read a batch that :meth:`to_ipc` wrote, without a copy."""
        with pa.ipc.open_stream(payload) as reader:
            table = reader.read_next_batch()
        return cls(table, model=table.schema.metadata[_MODEL].decode())

    def to_ipc(self) -> bytes:
        """Arrow IPC stream of one record batch; model in the schema's metadata."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_batch(self._table)
        payload: bytes = sink.getvalue().to_pybytes()
        return payload

    def to_arrow(self) -> pa.RecordBatch:
        """The columns as an Arrow record batch."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """All columns as a frame, under their full names.

        Tensors become one numpy array per row.
        """
        return pd.DataFrame({name: self._values(name) for name in self.names})

    def to_records(self) -> list[dict[str, Any]]:
        """Nested dictionaries for JSON, in the form that :meth:`from_records` takes.

        Nulls are left out, and so are NaN and infinities, which JSON cannot say (inside a tensor: None).
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

    # ---- reading ---------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Number of records."""
        return int(self._table.num_rows)

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"Batch(model={self.model!r}, rows={self.rows}, columns={self.names})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self.model == other.model and self._table.equals(other._table)

    __hash__ = None  # type: ignore[assignment]  # compared by content, which is too large to hash

    @property
    def names(self) -> list[str]:
        """Full column names, system columns first."""
        return list(self._table.schema.names)

    def has(self, name: str) -> bool:
        """Test for a column of that full name."""
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
            What stands for a null. Without it floats show NaN, texts None, and integer or boolean
            columns with nulls raise ValueError.

        Raises
        ------
        KeyError
            If there is no such column; the message lists what there is.
        """
        key = name if null is ... else f"{name}\0{null!r}"
        values: NDArray[Any] | None = self._cache.get(key)
        if values is None:
            values = self._shared.get(key)
            if values is None:
                values = to_numpy(self.arrow(name), name, null)
                if values.dtype != object:  # nothing in it can be changed
                    self._shared[key] = values
            self._cache[key] = values
        return values

    def arrow(self, name: str) -> pa.Array:
        """One column as an Arrow array."""
        index = self._table.schema.get_field_index(name)
        if index < 0:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.names)}")
        return self._table.column(index)

    def field(self, name: str) -> NDArray[np.object_]:
        """Values of a field, from its column or from the rare fields.

        Fields that came seldom, beyond the columns that a model may have, share the JSON column
        ``attrs.__rest__`` (or ``inputs.``, ``outputs.``, ``label.``). None where there is no value.

        Examples
        --------
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
        """Mask of the records without a value in a column, shape (rows,)."""
        mask: NDArray[np.bool_] = self.arrow(name).is_null().to_numpy(zero_copy_only=False)
        return mask

    @property
    def by_replica(self) -> NDArray[np.bool_]:
        """Mask of the records that the champion's replica answered, shape (rows,).

        The replica answers where production logged no prediction.
        """
        if not self.has("by_replica"):
            return np.zeros(self.rows, dtype=np.bool_)
        return self.column("by_replica", null=False)

    @property
    def inputs(self) -> pd.DataFrame:
        """Columns ``inputs.*`` as a frame of one's own (copy on write)."""
        return self._frame("inputs")

    @property
    def outputs(self) -> pd.DataFrame:
        """Columns ``outputs.*`` as a frame."""
        return self._frame("outputs")

    @property
    def labels(self) -> pd.DataFrame:
        """Columns ``label.*`` as a frame."""
        return self._frame("label")

    @property
    def attrs(self) -> pd.DataFrame:
        """Columns ``attrs.*`` as a frame."""
        return self._frame("attrs")

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Mask of the records to judge.

        False for the context rows of a window.
        """
        return np.ones(self.rows, dtype=np.bool_) if self._is_new is None else self._is_new

    @property
    def has_context(self) -> bool:
        """True for a view of a window.

        ``is_new`` then tells the rows to judge from their context.
        """
        return self._is_new is not None

    @property
    def is_last(self) -> NDArray[np.bool_]:
        """Mask of the last record of each entity or group.

        Nothing will follow these in their window.
        """
        return np.zeros(self.rows, dtype=np.bool_) if self._is_last is None else self._is_last

    def previous_rows(self, steps: int = 1) -> NDArray[np.intp]:
        """Row number of the entity's record ``steps`` before.

        Shape (rows,); -1 where there is none.

        In a view the entity is what its window's ``by`` says, and what lies beyond the window's ``rows`` or
        ``seconds`` is not there; elsewhere it is the column ``entity``. Records without one have none before.
        """
        if steps < 1:
            raise ValueError(f"steps must be >= 1, got {steps}")
        key = f"previous\0{steps}"
        if key not in self._cache:
            self._cache[key] = self._within_reach(_earlier(self._run_codes(), steps), steps)
        rows: NDArray[np.intp] = self._cache[key]
        return rows

    def previous(self, name: str, steps: int = 1, null: object = ...) -> NDArray[Any]:
        """Value of a column in the same entity's record ``steps`` before.

        Parameters
        ----------
        null
            What stands where there is no such record, or it holds a null. Without it floats show NaN, texts
            None and times NaT; integer and boolean columns raise ValueError.

        Examples
        --------
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

    def explode(self, name: str) -> "Elements":
        """Elements of a list column as a batch of their own.

        See :class:`Elements`.

        Parameters
        ----------
        name
            Column of lists of structs (their fields become columns ``<name>.<field>``), of lists of plain
            values, or of tensors of shape (n, …) (the elements become column ``<name>``).

        Raises
        ------
        TypeError
            If the column holds no lists.
        """
        from .elements import explode  # it derives from Batch

        return explode(self, name)

    def answers(self, slot: str) -> "Batch | None":
        """Aligned answers (``outputs.*``) of another slot to the same records, or None."""
        return self._answers.get(slot)

    @property
    def answer_slots(self) -> list[str]:
        """Slots whose answers are at hand, sorted."""
        return sorted(self._answers)

    def groups(self, name: str) -> Iterator[tuple[Any, NDArray[np.intp]]]:
        """Each distinct value of a column with its row numbers in order.

        Null is a value (None) too.

        In a view, records without a value in the column that names the entity are a group each.
        """
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
        """Content hash of each record, equal for a repeat.

        Over all that its sender sent, whatever the block's schema.

        Leaves out ``id``, ``received`` and a ``ts`` that was only the time of receipt.
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

    # ---- deriving --------------------------------------------------------------------------------------

    def own(self) -> "Batch":
        """Copy of the batch with a cache of its own.

        One reader's cached or changed values stay invisible to the others.
        """
        derived = self._marked(Batch(self._table, model=self.model))
        derived._shared = self._shared
        if self._answers:
            derived._answers = {slot: answer.own() for slot, answer in self._answers.items()}
        return derived

    def take(self, rows: ArrayLike) -> "Batch":
        """Records at row numbers or where a mask is True.

        Answers of other slots are taken along.
        """
        index = np.asarray(rows)
        index = np.flatnonzero(index) if index.dtype == np.bool_ else index.astype(np.intp)
        return self._derive(lambda batch: _take(batch._table, index), lambda marks: marks[index])

    def slice(self, start: int, rows: int | None = None) -> "Batch":
        """``rows`` records from ``start`` on, without a copy."""
        stop = self.rows if rows is None else start + rows
        return self._derive(lambda batch: batch._table.slice(start, rows), lambda marks: marks[start:stop])

    @staticmethod
    def concat(batches: Sequence["Batch"]) -> "Batch":
        """Records of all batches, which must share model and schema.

        Answers and ``is_new`` are dropped.

        Raises
        ------
        ValueError
            If there is no batch, or models differ.
        SchemaMismatch
            Naming the first column that differs.
        """
        if not batches:
            raise ValueError("concat needs at least one batch: an empty list has no model and no schema")
        first = batches[0]
        for other in batches[1:]:
            if other.model != first.model:
                raise ValueError(f"batches of one model expected, got {first.model!r} and {other.model!r}")
            _same_schema(first._table.schema, other._table.schema)
        if len(batches) == 1:
            return Batch(first._table, model=first.model)
        table = pa.Table.from_batches([batch._table for batch in batches]).combine_chunks()
        merged = table.to_batches() or [first._table.slice(0, 0)]
        return Batch(merged[0], model=first.model)

    def with_columns(self, columns: Mapping[str, ArrayLike]) -> "Batch":
        """Copy with columns (full names) added or replaced."""
        merged: dict[str, ArrayLike] = {name: self._table.column(name) for name in self.names}
        derived = Batch.from_columns(merged | dict(columns), model=self.model, rows=self.rows)
        derived._answers = self._answers
        return self._marked(derived)

    def with_outputs(self, outputs: Mapping[str, ArrayLike]) -> "Batch":
        """Copy with every ``outputs.*`` column replaced by a model's answers (short names)."""
        kept: dict[str, ArrayLike] = {
            name: self._table.column(name) for name in self.names if not name.startswith("outputs.")
        }
        kept |= {f"outputs.{name}": values for name, values in outputs.items()}
        derived = Batch.from_columns(kept, model=self.model, rows=self.rows)
        derived._answers = self._answers
        return self._marked(derived)

    def as_replica(self) -> "Batch":
        """Copy whose outputs are the replica's answers, judged because production said nothing."""
        at = len(SYSTEM)
        columns = list(self._table.columns)
        columns.insert(at, pa.array(np.ones(self.rows, dtype=np.bool_)))
        schema = self._table.schema.insert(at, pa.field("by_replica", MARKS["by_replica"]))
        derived = self._marked(Batch(pa.RecordBatch.from_arrays(columns, schema=schema), model=self.model))
        derived._answers = self._answers | {"champion": Batch(derived._table, model=self.model)}
        return derived

    def with_answers(self, answers: Mapping[str, "Mapping[str, ArrayLike] | Batch"]) -> "Batch":
        """Copy with the aligned answers of other slots."""
        derived = self._marked(Batch(self._table, model=self.model))
        derived._answers = dict(self._answers)
        for slot, outputs in answers.items():
            answer = outputs if isinstance(outputs, Batch) else self.with_outputs(outputs)
            if answer.rows != self.rows:
                raise ValueError(f"answers of {slot!r}: {self.rows} rows expected, got {answer.rows}")
            derived._answers[slot] = answer
        return derived

    def with_marks(
        self,
        is_new: NDArray[np.bool_],
        is_last: NDArray[np.bool_] | None = None,
        *,
        window: Window | Group | None = None,
        runs: NDArray[np.int64] | None = None,
    ) -> "Batch":
        """Copy with a window's marks on its rows.

        Parameters
        ----------
        is_new, is_last
            Rows to be judged, and rows that end their entity, shape (rows,).
        window
            What the view was made for: how :meth:`previous` knows the entity and how far it may look back.
        runs
            Number that rows of one entity share, shape (rows,); without it ``window.by`` tells.
        """
        derived = Batch(self._table, model=self.model)
        derived._answers = self._answers
        derived._is_new, derived._is_last = is_new, is_last
        derived._window, derived._runs = window, runs
        return derived

    # ---- inside ----------------------------------------------------------------------------------------

    def _marked(self, derived: "Batch") -> "Batch":
        derived._is_new, derived._is_last = self._is_new, self._is_last
        derived._window, derived._runs = self._window, self._runs
        return derived

    def _derive(self, cut: Any, cut_marks: Any) -> "Batch":
        derived = Batch(cut(self), model=self.model)
        derived._answers = {
            slot: Batch(cut(other), model=self.model) for slot, other in self._answers.items()
        }
        derived._window = self._window
        for name in ("_is_new", "_is_last", "_runs"):
            marks = getattr(self, name)
            setattr(derived, name, None if marks is None else cut_marks(marks))
        return derived

    def _within_reach(self, rows: NDArray[np.intp], steps: int) -> NDArray[np.intp]:
        """``rows`` without those that the window does not promise to be there, -1 in their place."""
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
        """Number of each row's entity; records without one get a number of their own each."""
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

    def _frame(self, part: str) -> pd.DataFrame:
        key = f"{part}\0frame"
        if key not in self._cache:
            names = [name for name in self.names if name.startswith(f"{part}.")]
            self._cache[key] = pd.DataFrame(
                {name.removeprefix(f"{part}."): self._values(name) for name in names},
                index=pd.RangeIndex(self.rows),
            )
        frame: pd.DataFrame = self._cache[key]
        return frame.copy(deep=False)  # copy on write: changing it never changes the batch


def schema_digest(schema: pa.Schema) -> str:
    """Digest of column names and types, independent of metadata."""
    text = "\n".join(f"{field.name}:{field.type}" for field in schema)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def canonical_order(names: Iterable[str]) -> list[str]:
    """Full column names in the order of every batch."""
    given, system = set(names), [*SYSTEM, *MARKS]
    return [
        *(name for name in system if name in given),
        *sorted((name for name in given if name not in system), key=_part_order),
    ]


def _earlier(codes: NDArray[np.int64], steps: int) -> NDArray[np.intp]:
    """Row ``steps`` before with the same code, -1 where there is none."""
    order = np.arange(len(codes))
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    rows = np.full(len(codes), -1, dtype=np.intp)
    same = sorted_codes[steps:] == sorted_codes[:-steps]
    rows[order[steps:][same]] = order[:-steps][same]
    return rows


def _member(text: str | None, field: str) -> Any:
    """Member of a JSON object, None where there is none."""
    try:
        found = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None  # a sender may put any text there
    return found.get(field) if isinstance(found, dict) else None


def _is_part(name: str) -> bool:
    part, _, field = name.partition(".")
    return part in PARTS and bool(field)


def _canonical(arrays: dict[str, pa.Array], rows: int, model: str) -> pa.RecordBatch:
    """Record batch with every system column and parts in a fixed order, so that equal fields concatenate."""
    arrays.setdefault("received", pa.repeat(pa.scalar(EPOCH, TIME), rows))
    defaults = {
        "id": lambda: pa.array([str(row) for row in range(rows)], pa.string()),
        "ts": lambda: arrays["received"],
        "weight": lambda: pa.array(np.ones(rows)),
        "partial": lambda: pa.array(np.zeros(rows, dtype=np.bool_)),
    }
    for name, kind in SYSTEM.items():
        if name not in arrays:
            arrays[name] = defaults[name]() if name in defaults else pa.nulls(rows, kind)
    marks = [name for name in MARKS if name in arrays]
    parts = sorted((name for name in arrays if name not in SYSTEM and name not in MARKS), key=_part_order)
    names = [*SYSTEM, *marks, *parts]
    schema = pa.schema(
        [pa.field(name, arrays[name].type) for name in names], metadata={_MODEL: model.encode()}
    )
    return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=schema)


def _part_order(name: str) -> tuple[int, str]:
    part, _, field = name.partition(".")
    if part not in PARTS or not field:
        raise SchemaMismatch(
            name, f"expected one of {', '.join(SYSTEM)} or {', '.join(p + '.*' for p in PARTS)}"
        )
    return PARTS.index(part), field


def _same_schema(first: pa.Schema, other: pa.Schema) -> None:
    if first.equals(other):
        return
    for name in dict.fromkeys([*first.names, *other.names]):
        kinds = [
            str(schema.field(name).type) if name in schema.names else "absent" for schema in (first, other)
        ]
        if kinds[0] != kinds[1]:
            raise SchemaMismatch(
                name, f"{kinds[0]} in the first batch, {kinds[1]} in another; cast one of them"
            )


def _take(table: pa.RecordBatch, rows: NDArray[Any]) -> pa.RecordBatch:
    return table.take(pa.array(rows.astype(np.int64)))


def _time(value: Any, received: datetime) -> datetime:
    if value is None:
        return received
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise SchemaMismatch(
            "ts", f"ISO 8601 time with an offset expected, for example …T10:00:00Z, got {value!r}"
        )
    return time.astimezone(UTC)
