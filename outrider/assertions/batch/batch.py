"""Batch: immutable, columnar records of one model."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.windows.group import Group
from outrider.assertions.windows.window import Window
from outrider.errors import SchemaMismatch

from .columns import ArrayLike, from_values, series_values
from .elements import How, fields, flattened, is_list, reduced
from .record_columns import RecordColumns
from .schema import (
    EPOCH,
    MARKS,
    MODEL_KEY,
    PARTS,
    REST,
    SYSTEM,
    TIME,
    canonical_table,
    check_same,
    is_part,
    ordered_table,
    schema_digest,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EPOCH", "MARKS", "PARTS", "REST", "SYSTEM", "TIME", "Batch", "Elements", "schema_digest"]


class Batch(RecordColumns):
    """Records of one model with one schema, as columns.

    Immutable: methods return new batches.

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

    __slots__ = ("_answers",)

    def __init__(self, table: pa.RecordBatch, *, model: str) -> None:
        super().__init__(table, model=model)
        self._answers: dict[str, Batch] = {}

    # ---- borders ---------------------------------------------------------------------------------------

    @classmethod
    def from_records(
        cls, records: Sequence[Mapping[str, Any]], *, model: str, received: datetime | None = None
    ) -> "Batch":
        """Batch from nested dictionaries as in ``POST /v1/records``.

        A missing ``id`` becomes the row number, a missing ``ts`` the time of receipt.

        Raises
        ------
        SchemaMismatch
            If the values of a column have no common type; the message names it.
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
            if odd := next((one for one in parts if not isinstance(one, Mapping)), None):
                raise SchemaMismatch(part, f"an object expected, got {type(odd).__name__}")
            for field in dict.fromkeys(field for values in parts for field in values):
                columns[f"{part}.{field}"] = [values.get(field) for values in parts]
        return cls.from_columns(columns, model=model, rows=len(records))

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, ArrayLike], *, model: str, rows: int | None = None
    ) -> "Batch":
        """Batch from columns by full name. System columns that are missing get their defaults."""
        if rows is None:
            rows = len(next(iter(columns.values()))) if columns else 0
        arrays = {}
        for name, values in columns.items():
            try:
                array = from_values(values)
                kind = SYSTEM.get(name) or MARKS.get(name)
                arrays[name] = array if kind is None or array.type == kind else array.cast(kind)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                raise SchemaMismatch(name, f"values of one type expected; {error}") from error
            if len(arrays[name]) != rows:
                raise SchemaMismatch(name, f"{rows} values expected, one per record, got {len(arrays[name])}")
        return cls(canonical_table(arrays, rows, model), model=model)

    @classmethod
    def from_pandas(
        cls,
        frame: "pd.DataFrame",
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
        """Batch from the columns of a frame.

        ``id``, ``entity``, ``ts`` and ``version`` are names of its columns.

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
        """Batch from Arrow data whose columns have full names.

        ``model`` defaults to the value in the schema metadata.
        """
        model = model or (table.schema.metadata or {}).get(MODEL_KEY, b"").decode()
        if not model:
            raise ValueError("model= is needed: the Arrow schema carries no 'outrider.model' metadata")
        system = {*SYSTEM, *MARKS}
        unknown = [name for name in table.column_names if name not in system and not is_part(name)]
        if unknown:
            raise SchemaMismatch(unknown[0], f"expected one of {', '.join(SYSTEM)} or inputs.*, outputs.*, …")
        columns = {name: table.column(name) for name in table.column_names}
        return cls.from_columns(columns, model=model, rows=table.num_rows)

    @classmethod
    def from_ipc(cls, payload: bytes | pa.Buffer) -> "Batch":
        """Read a batch from the bytes of :meth:`to_ipc`, without a copy."""
        with pa.ipc.open_stream(payload) as reader:
            table = reader.read_next_batch()
        return cls(table, model=table.schema.metadata[MODEL_KEY].decode())

    def __repr__(self) -> str:
        return f"Batch(model={self.model!r}, rows={self.rows}, columns={self.names})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self.model == other.model and self._table.equals(other._table)

    __hash__ = None  # type: ignore[assignment]  # compared by content, which is too large to hash

    def answers(self, slot: str) -> "Batch | None":
        """Answers (``outputs.*``) of another slot, row by row. None if the slot gave none."""
        return self._answers.get(slot)

    @property
    def answer_slots(self) -> list[str]:
        """Slots whose answers this batch holds, sorted."""
        return sorted(self._answers)

    def explode(self, name: str) -> "Elements":
        """Elements of a list column as a batch, one row per element.

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
        values, counts = flattened(self.arrow(name), name)
        parent = np.repeat(np.arange(self.rows), counts)
        places, names = pa.array(parent), [*SYSTEM, *(mark for mark in MARKS if self.has(mark))]
        taken = {column: self._table.column(column).take(places) for column in names}
        elements = Elements(
            ordered_table(taken | fields(name, values), self._table.schema.metadata),
            model=self.model,
            parent=parent,
            element=np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts),
            parents=self.rows,
            exploded=name,
        )
        for slot, answer in self._answers.items():
            if not answer.has(name) or not is_list(answer._table.column(name).type):
                continue
            theirs, lengths = flattened(answer.arrow(name), name)
            if np.array_equal(counts, lengths):
                system = {column: taken[column] for column in SYSTEM}
                table = ordered_table(system | fields(name, theirs), self._table.schema.metadata)
                elements._answers[slot] = Batch(table, model=self.model)
        elements._window = self._window
        for mark in ("_is_new", "_is_last", "_runs"):
            known = getattr(self, mark)
            setattr(elements, mark, None if known is None else known[parent])
        return elements

    # ---- deriving --------------------------------------------------------------------------------------

    def own(self, *, reads: set[str] | None = None) -> "Batch":
        """Copy of the batch with a separate cache.

        Values that one reader caches or changes are not seen by others.

        Parameters
        ----------
        reads
            Set to which the copy, and any batch derived from it, adds the name of each column that is read.
        """
        derived = self._marked(Batch(self._table, model=self.model))
        derived._shared = self._shared
        derived._reads = reads
        if self._answers:
            derived._answers = {slot: answer.own(reads=reads) for slot, answer in self._answers.items()}
        return derived

    def take(self, rows: ArrayLike) -> "Batch":
        """Records at row numbers, or where a mask is True. Answers of other slots are taken along."""
        index = np.asarray(rows)
        index = np.flatnonzero(index) if index.dtype == np.bool_ else index.astype(np.intp)
        return self._derive(lambda batch: _take(batch._table, index), lambda marks: marks[index])

    def slice(self, start: int, rows: int | None = None) -> "Batch":
        """Batch of ``rows`` records from ``start`` on, without a copy."""
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
            If a column differs; the message names the first one.
        """
        if not batches:
            raise ValueError("concat needs at least one batch: an empty list has no model and no schema")
        first = batches[0]
        for other in batches[1:]:
            if other.model != first.model:
                raise ValueError(f"batches of one model expected, got {first.model!r} and {other.model!r}")
            check_same(first._table.schema, other._table.schema)
        if len(batches) == 1:
            return Batch(first._table, model=first.model)
        table = pa.Table.from_batches([batch._table for batch in batches]).combine_chunks()
        merged = table.to_batches() or [first._table.slice(0, 0)]
        return Batch(merged[0], model=first.model)

    def with_columns(self, columns: Mapping[str, ArrayLike]) -> "Batch":
        """Copy with columns added or replaced, by full name."""
        merged: dict[str, ArrayLike] = {name: self._table.column(name) for name in self.names}
        derived = Batch.from_columns(merged | dict(columns), model=self.model, rows=self.rows)
        derived._answers = self._answers
        return self._marked(derived)

    def with_outputs(self, outputs: Mapping[str, ArrayLike]) -> "Batch":
        """Copy with all ``outputs.*`` columns replaced by a model's answers.

        Keys are short names, without ``outputs.``.
        """
        kept: dict[str, ArrayLike] = {
            name: self._table.column(name) for name in self.names if not name.startswith("outputs.")
        }
        kept |= {f"outputs.{name}": values for name, values in outputs.items()}
        derived = Batch.from_columns(kept, model=self.model, rows=self.rows)
        derived._answers = self._answers
        return self._marked(derived)

    def as_replica(self) -> "Batch":
        """Copy marked as the replica's answers, used where production gave none."""
        at = len(SYSTEM)
        columns = list(self._table.columns)
        columns.insert(at, pa.array(np.ones(self.rows, dtype=np.bool_)))
        schema = self._table.schema.insert(at, pa.field("by_replica", MARKS["by_replica"]))
        derived = self._marked(Batch(pa.RecordBatch.from_arrays(columns, schema=schema), model=self.model))
        derived._answers = self._answers | {"champion": Batch(derived._table, model=self.model)}
        return derived

    def with_answers(self, answers: Mapping[str, "Mapping[str, ArrayLike] | Batch"]) -> "Batch":
        """Copy with answers of other slots to the same records."""
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
            Rows to judge, and last rows of their entity, shape (rows,).
        window
            Window or group of the view; :meth:`previous` reads from it the entity column and how far it may
            look back.
        runs
            Integer that rows of one entity share, shape (rows,); default: the values of column ``window.by``.
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
        derived._reads = self._reads
        return derived

    def _derive(self, cut: Any, cut_marks: Any) -> "Batch":
        derived = Batch(cut(self), model=self.model)
        derived._answers = {
            slot: Batch(cut(other), model=self.model) for slot, other in self._answers.items()
        }
        for each in (derived, *derived._answers.values()):
            each._reads = self._reads
        derived._window = self._window
        for name in ("_is_new", "_is_last", "_runs"):
            marks = getattr(self, name)
            setattr(derived, name, None if marks is None else cut_marks(marks))
        return derived


class Elements(Batch):
    """Elements of :meth:`Batch.explode`, one row each, ordered by record and position.

    System columns are those of the record; of the other columns only the exploded one is present.

    Attributes
    ----------
    parent
        Row number of each element's record in the batch that was exploded, shape (rows,).
    element
        Position of each element in its record's list, shape (rows,).
    parents
        Number of records in the batch that was exploded.
    exploded
        Full name of the list column.

    Examples
    --------
    >>> boxes = [[{"score": 0.9}, {"score": 0.2}], []]
    >>> batch = Batch.from_records([{"outputs": {"boxes": b}} for b in boxes], model="m")
    >>> elements = batch.explode("outputs.boxes")
    >>> scores = elements.column("outputs.boxes.score")
    >>> elements.parent.tolist(), elements.element.tolist(), elements.reduce(1 - scores, "max").tolist()
    ([0, 0], [0, 1], [0.8, 0.0])
    """

    __slots__ = ("element", "exploded", "parent", "parents")

    def __init__(
        self,
        table: pa.RecordBatch,
        *,
        model: str,
        parent: NDArray[np.intp],
        element: NDArray[np.intp],
        parents: int,
        exploded: str,
    ) -> None:
        super().__init__(table, model=model)
        self.parent = parent
        self.element = element
        self.parents = parents
        self.exploded = exploded

    def arrow(self, name: str) -> pa.Array:
        """Column as an Arrow array. If there are no elements, any field name gives an empty column."""
        if not self.rows and name.startswith(f"{self.exploded}.") and not self.has(name):
            return pa.nulls(0, pa.float64())
        return super().arrow(name)

    def reduce(self, values: ArrayLike, how: How = "max") -> NDArray[Any]:
        """One value per record from one value per element.

        0 (False) for a record without elements.

        Parameters
        ----------
        values
            Finite, shape (rows,).
        how
            ``max``, ``sum`` or ``mean`` of severities, or ``any`` of booleans.

        Returns
        -------
        numpy.ndarray
            Shape (parents,); booleans for ``any``, else floats.
        """
        return reduced(values, how, self.parent, self.parents)


def _take(table: pa.RecordBatch, rows: NDArray[Any]) -> pa.RecordBatch:
    return table.take(pa.array(rows.astype(np.int64)))


def _time(value: Any, received: datetime) -> datetime:
    if value is None:
        return received
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise SchemaMismatch(
            "ts", f"ISO 8601 time with an offset expected, for example …T10:00:00Z, got {value!r}"
        )
    return time.astimezone(UTC)
