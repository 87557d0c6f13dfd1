"""Elements of a list column as a batch of their own.

Boxes, passages, tokens.
"""

from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from .batch import MARKS, SYSTEM, Batch, canonical_order
from .columns import is_tensor, tensor_type

How = Literal["max", "sum", "mean", "any"]
HOWS: tuple[How, ...] = get_args(How)


class Elements(Batch):
    """Elements of :meth:`Batch.explode`, one row each.

    In order of record and position.

    System columns are those of the record; of the other columns only the exploded one is there.

    Attributes
    ----------
    parent
        Row number of each element's record in the batch that was exploded, shape (rows,).
    element
        Position of each element in its record's list, shape (rows,).
    parents
        Number of records in the batch that was exploded.
    exploded
        Name of the column.

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
        """One column as an Arrow array.

        Without elements, any field of theirs is an empty column.

        What fields they will have, nobody may have said yet.
        """
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
        if how not in HOWS:
            raise ValueError(f"how must be one of {', '.join(HOWS)}, got {how!r}")
        given = np.asarray(values)
        if given.shape != (self.rows,):
            raise ValueError(f"one value per element expected, shape ({self.rows},), got {given.shape}")
        counts = np.bincount(self.parent, minlength=self.parents)
        if how == "any":
            return np.bincount(self.parent[given.astype(np.bool_)], minlength=self.parents) > 0
        weights = given.astype(np.float64)
        if how == "max":
            top = np.zeros(self.parents)
            filled = np.flatnonzero(counts)
            starts = (np.cumsum(counts) - counts)[filled]
            if len(filled):
                top[filled] = np.maximum.reduceat(weights, starts)
            return top
        total = np.bincount(self.parent, weights=weights, minlength=self.parents)
        return total if how == "sum" else total / np.maximum(counts, 1)


def explode(batch: Batch, name: str) -> Elements:
    """Elements of column ``name``; see :meth:`Batch.explode`.

    Answers of other slots come along where their lists are as long, so that elements correspond.
    """
    table = batch.to_arrow()
    values, counts = _flattened(batch, name)
    parent = np.repeat(np.arange(batch.rows), counts)
    element = np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = pa.array(parent)
    marks = [column for column in MARKS if batch.has(column)]
    columns = {column: table.column(column).take(places) for column in (*SYSTEM, *marks)}
    columns |= _fields(name, values)
    elements = Elements(
        _table(columns, table.schema),
        model=batch.model,
        parent=parent,
        element=element,
        parents=batch.rows,
        exploded=name,
    )
    for slot in batch.answer_slots:
        answer = batch.answers(slot)
        if answer is None or not answer.has(name) or not _is_list(answer.to_arrow().column(name).type):
            continue
        theirs, lengths = _flattened(answer, name)
        if np.array_equal(counts, lengths):
            system = {column: columns[column] for column in SYSTEM}
            elements._answers[slot] = Batch(
                _table(system | _fields(name, theirs), table.schema), model=batch.model
            )
    elements._window = batch._window
    for mark in ("_is_new", "_is_last", "_runs"):
        marks = getattr(batch, mark)
        if marks is not None:
            setattr(elements, mark, marks[parent])
    return elements


def _table(columns: dict[str, pa.Array], like: pa.Schema) -> pa.RecordBatch:
    names = canonical_order(columns)
    schema = pa.schema([pa.field(name, columns[name].type) for name in names], metadata=like.metadata)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        is_tensor(kind)
        or pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_null(kind)
    )


def _flattened(batch: Batch, name: str) -> tuple[pa.Array, NDArray[np.int64]]:
    """All elements one after the other, and how many each record has; a null list has none."""
    column = batch.arrow(name)
    kind = column.type
    if not _is_list(kind):
        raise TypeError(
            f"{name} is {kind}, not a column of lists; explode what holds several elements a record"
        )
    if pa.types.is_null(kind):  # no record has said yet what it holds
        return pa.nulls(0), np.zeros(batch.rows, dtype=np.int64)
    if is_tensor(kind):
        return _tensor_elements(column)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return column.flatten(), lengths.astype(np.int64)


def _tensor_elements(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    size, *inner = column.type.shape
    present = column.is_valid().to_numpy(zero_copy_only=False)
    flat = column.storage.flatten()  # leaves null rows out
    counts = np.where(present, size, 0).astype(np.int64)
    if not inner:
        return flat, counts
    kind = tensor_type(inner, column.type.value_type)
    storage = pa.FixedSizeListArray.from_arrays(flat, int(np.prod(inner)))
    return pa.ExtensionArray.from_storage(kind, storage), counts


def _fields(name: str, values: pa.Array) -> dict[str, pa.Array]:
    if not pa.types.is_struct(values.type):
        return {name: values}
    fields = [values.type.field(index).name for index in range(values.type.num_fields)]
    return {f"{name}.{field}": column for field, column in zip(fields, values.flatten(), strict=True)}
