"""Columns of lists: flat objects (boxes, passages) or plain values, any number per record.

Elements of a whole block are converted field by field, so a list costs what its numbers cost. Even lists of
numbers stay tensors (``column_types``).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch.columns import is_tensor, list_array
from outrider.dataops.payloads.columns import is_payload
from outrider.dataops.state.stored_texts import text_fault
from outrider.monitor.http.problem import ProblemError, problem

from .column_types import Values, cast_arrow, convert, describe, is_list, nested_rows, show
from .rejections import Misfits, Reason, RowFaults, Rows, said

_PLAIN = {int, float, bool}
_NESTED = {list, dict}
_NONE = type(None)


@dataclass(frozen=True, slots=True)
class Bounds:
    depth: int = 16
    elements: int = 100_000
    fields: int = 512
    """Fields that a list of objects may have beyond those known."""
    cells: int = 20_000_000
    """Most elements x fields of the column."""


@dataclass(frozen=True, slots=True)
class ConvertedColumn:
    array: pa.Array | None
    """None if no value says what the column is; bad rows hold anything."""
    bad: RowFaults = field(default_factory=lambda: RowFaults(0))
    """Rows that do not fit what was known before."""
    disagreeing: RowFaults = field(default_factory=lambda: RowFaults(0))
    """Rows that do not fit what others of the block say about something new."""

    @classmethod
    def of(cls, array: pa.Array | None, misfits: Misfits, rows: int, *, is_new: bool) -> "ConvertedColumn":
        if not len(misfits):
            return cls(array)
        faults = RowFaults(rows)
        faults.add_misfits("", misfits)
        return cls(array, disagreeing=faults) if is_new else cls(array, faults)


def convert_column(
    values: Values, known: pa.DataType | None, *, declared: bool, bounds: Bounds
) -> ConvertedColumn:
    """Column of scalars, tensors or lists; see `column_types.convert`.

    An undeclared list type may grow: int becomes float, objects get fields, and a list that was always empty
    learns its elements.
    """
    if isinstance(values, pa.Array) and is_tensor(values.type) and known is not None and is_list(known):
        # Vectors of one length are lists too; of more dimensions there is no list column.
        is_flat = len(values.type.shape) == 1
        values = values.storage.cast(pa.list_(values.type.value_type)) if is_flat else nested_rows(values)
    if isinstance(values, pa.Array) and is_payload(values.type):
        return _payloads(values, known)
    if isinstance(values, pa.Array) and (whole := _cast_whole(values, known, declared, bounds)) is not None:
        return ConvertedColumn(whole)
    if isinstance(values, pa.Array) and pa.types.is_nested(values.type) and not is_tensor(values.type):
        values = _listed(values)
    if not isinstance(values, pa.Array) and _holds_lists(values, known):
        return _Lists(known, declared=declared, bounds=bounds).convert(values)
    array, misfits = convert(values, known, declared=declared, depth=bounds.depth)
    return ConvertedColumn.of(array, misfits, len(values), is_new=known is None)


def _payloads(array: pa.Array, known: pa.DataType | None) -> ConvertedColumn:
    if known is None or is_payload(known):
        return ConvertedColumn(array)
    reason = f"expected {describe(known)}, got a payload"
    rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    return ConvertedColumn.of(None, Misfits(rows, reason), len(array), is_new=False)


def _listed(array: pa.Array) -> list[Any]:
    try:
        values: list[Any] = array.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:  # times beyond what Python has
        raise ProblemError(
            problem(400, f"Arrow body: values of {array.type} cannot be read: {error}")
        ) from None
    return values


def width(kind: pa.DataType | None) -> int:
    """Number of columns that a type counts for: a list of objects has one per field."""
    if kind is None:
        return 0
    return max(1, kind.value_type.num_fields) if is_list(kind) else 1


def cells_of(array: pa.Array) -> int:
    """Elements x fields of a list column; 0 for others."""
    return len(array.values) * width(array.type) if is_list(array.type) else 0


def _holds_lists(values: list[Any], known: pa.DataType | None) -> bool:
    """True for a column of lists rather than scalars or tensors."""
    if known is not None:
        return is_list(known)
    first = next((value for value in values if value is not None), None)
    if not isinstance(first, list):
        return False
    filled = next((value for value in values if isinstance(value, list) and value), None)
    if filled is None:
        return True  # what their elements are, a later one says
    kinds = set(map(type, filled))
    if not kinds <= _PLAIN:
        return list not in kinds
    sizes = {len(value) for value in values if isinstance(value, list) and not _is_nest(value)}
    return len(sizes) > 1


def _is_nest(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], list)


class _Lists:
    def __init__(self, known: pa.DataType | None, *, declared: bool, bounds: Bounds) -> None:
        item = None if known is None else known.value_type
        self._known = known
        self._item: pa.DataType | None = None if item is None or pa.types.is_null(item) else item
        self._declared = declared
        self._bounds = bounds
        self._bad = self._disagreeing = RowFaults(0)
        self._starts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def convert(self, values: list[Any]) -> ConvertedColumn:
        self._bad, self._disagreeing = RowFaults(len(values)), RowFaults(len(values))
        lists = self._only_lists(values)
        missing = np.array([value is None for value in values])
        lengths = np.array([0 if value is None else len(value) for value in lists], dtype=np.int64)
        self._starts = np.cumsum(lengths) - lengths
        flat = list(chain.from_iterable(value for value in lists if value))
        if missing.all() and self._known is None:
            return ConvertedColumn(None)
        if flat:
            objects = pa.types.is_struct(self._item) if self._item is not None else type(flat[0]) is dict
            elements = self._objects(flat) if objects else self._plain(flat)
        else:
            elements = pa.nulls(0, self._item or pa.null())
        if elements is None:
            return ConvertedColumn(None, self._bad, self._disagreeing)
        return ConvertedColumn(list_array(elements, lengths, missing), self._bad, self._disagreeing)

    def _only_lists(self, values: list[Any]) -> list[Any]:
        """Values with an empty list in place of misfits."""
        most = self._bounds.elements
        if {list, _NONE} >= set(map(type, values)) and max(map(len, filter(None, values)), default=0) <= most:
            return values
        what = "a list" if self._known is None else describe(self._known)
        odd = [row for row, value in enumerate(values) if not (value is None or isinstance(value, list))]
        long = [row for row, value in enumerate(values) if isinstance(value, list) and len(value) > most]
        faults = self._disagreeing if self._known is None else self._bad
        faults.add(odd, "", lambda row: f"expected {what}, got {show(values[row])}")
        reason = f"a list has at most {most} elements (limits.elements), got "
        self._bad.add(long, "", lambda row: reason + str(len(values[row])))
        lists = list(values)
        for row in (*odd, *long):
            lists[row] = []
        return lists

    def _plain(self, flat: list[Any]) -> pa.Array | None:
        present = set(map(type, flat))
        if self._item is None and present & _NESTED:
            before = flat
            self._blame(
                (at for at, value in enumerate(flat) if type(value) in _NESTED),
                lambda at: f"expected plain values, got {show(before[at])}",
                is_new=True,
            )
            flat = [None if type(value) in _NESTED else value for value in flat]
        if _NONE in present:
            self._blame_nulls(flat)
        array, misfits = convert(flat, self._item, declared=self._declared)
        self._blame(misfits.rows, misfits.reason, is_new=self._item is None)
        return array

    def _objects(self, flat: list[Any]) -> pa.Array | None:
        """Elements that are objects: one array per field."""
        flat = self._only_objects(flat)
        known = {} if self._item is None else {f.name: f.type for f in self._item}
        names = _names(flat, known)
        if len(flat) * len(names) > self._bounds.cells:
            raise ProblemError(
                problem(
                    413,
                    f"{len(flat)} elements of {len(names)} fields are too many in one request; send fewer",
                )
            )
        room = self._bounds.fields
        fields: dict[str, pa.Array] = {}
        refused: dict[str, str] = {}
        for name in names:
            if name not in known and (reason := self._refusal(name, room)):
                refused[name] = reason
                continue
            values = [element.get(name) for element in flat]
            if name in known:
                array, misfits = convert(values, known[name], declared=self._declared)
            else:
                array, misfits = self._new_field(values, _below(name))
                room -= array is not None
            self._blame(misfits.rows, misfits.reason, _below(name), is_new=name not in known)
            if array is not None:
                fields[name] = array
        if refused:
            self._blame_fields(flat, refused)
        if not fields:
            reason = "expected an object with a field that is not null"
            self._blame(range(len(flat)), reason, is_new=True)
            return None
        kinds = [pa.field(name, array.type) for name, array in fields.items()]
        return pa.StructArray.from_arrays(list(fields.values()), fields=kinds)

    def _only_objects(self, flat: list[Any]) -> list[dict[str, Any]]:
        """Elements with an empty object in place of misfits."""
        if set(map(type, flat)) == {dict}:
            return flat
        self._blame_nulls(flat)
        odd = [at for at, value in enumerate(flat) if not (value is None or type(value) is dict)]
        self._blame(odd, lambda at: f"expected an object, got {show(flat[at])}", is_new=self._item is None)
        return [value if type(value) is dict else {} for value in flat]

    def _new_field(self, values: list[Any], below: str) -> tuple[pa.Array | None, Misfits]:
        """Array of a field that no element had, None when it teaches nothing; and the misfits."""
        if not set(map(type, values)) & _NESTED:
            return convert(values, None, declared=False)
        what = "a field of an element is a number, text or boolean, got "
        nested = (at for at, value in enumerate(values) if type(value) in _NESTED)
        self._blame(nested, lambda at: what + show(values[at]), below, is_new=True)
        return convert([None if type(value) in _NESTED else value for value in values], None, declared=False)

    def _blame_fields(self, flat: list[dict[str, Any]], refused: Mapping[str, str]) -> None:
        """Refuse elements with a refused field, at one look each, however many names there are."""
        found = {
            at: name
            for at, element in enumerate(flat)
            for name in reversed(element)
            if name in refused and element[name] is not None
        }
        self._blame(found, lambda at: refused[found[at]], lambda at: _below(found[at]), is_new=True)

    def _refusal(self, name: str, room: int) -> str | None:
        if self._declared and self._item is not None:
            return f"is not among the declared fields of {describe(self._item)}"
        if not name:
            return "a field needs a name, got an empty one"
        if len(name) > 256 or text_fault(name):
            return "names of fields are texts of at most 256 characters"
        if room <= 0:
            return "a new field beyond the columns that a model may have (limits.columns)"
        return None

    def _blame_nulls(self, flat: list[Any]) -> None:
        nulls = (at for at, value in enumerate(flat) if value is None)
        self._blame(nulls, "a null is no element; leave it out", is_new=False)

    def _blame(
        self, places: Iterable[int] | Rows, reason: Reason, below: Reason = "", *, is_new: bool
    ) -> None:
        ats = places if isinstance(places, np.ndarray) else np.fromiter(places, np.int64)
        if not len(ats):
            return
        rows, first = np.unique(self._row_of(ats), return_index=True)

        def place(at: int) -> str:
            return f"[{at - int(self._starts[self._row_of(at)])}]{said(below, at)}"

        faults = self._disagreeing if is_new else self._bad
        faults.add(rows, "", reason, below=place, said_of=ats[first])

    def _row_of(self, at: Any) -> Any:
        """Record of an element, or of several."""
        return np.searchsorted(self._starts, at, side="right") - 1


def _below(name: str) -> str:
    return f".{name[:256] if text_fault(name) is None else ascii(name[:256])}"


def _names(flat: list[dict[str, Any]], known: dict[str, pa.DataType]) -> list[str]:
    first = flat[0].keys()
    if all(element.keys() == first for element in flat):
        return list(dict.fromkeys([*known, *first]))
    return list(dict.fromkeys(chain(known, chain.from_iterable(flat))))


# ---- Arrow ---------------------------------------------------------------------------------------------


def _cast_whole(
    array: pa.Array, known: pa.DataType | None, declared: bool, bounds: Bounds
) -> pa.Array | None:
    """Arrow list column cast whole; None: it must be looked at value by value."""
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not (known is None or is_list(known)):
        return None
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if lengths.max(initial=0) > bounds.elements:
        return None
    if known is None and not pa.types.is_struct(kind.value_type) and not _is_uneven(array, lengths):
        return None
    flat = array.flatten()
    if flat.null_count or not len(flat):
        return None
    item = None if known is None or pa.types.is_null(known.value_type) else known.value_type
    elements = _cast_objects(flat, item, declared, bounds) if pa.types.is_struct(flat.type) else None
    if elements is None and not pa.types.is_nested(flat.type) and not pa.types.is_struct(item or pa.null()):
        elements = cast_arrow(flat, item, declared=declared)
    if elements is None:
        return None
    return list_array(elements, lengths, array.is_null().to_numpy(zero_copy_only=False))


def _is_uneven(array: pa.Array, lengths: NDArray[np.int64]) -> bool:
    """True for lists that cannot be a tensor: texts, or numbers of several lengths."""
    value = array.type.value_type
    if not (pa.types.is_integer(value) or pa.types.is_floating(value) or pa.types.is_boolean(value)):
        return True
    present = lengths[array.is_valid().to_numpy(zero_copy_only=False)]
    return len(np.unique(present)) > 1


def _cast_objects(
    flat: pa.Array, item: pa.DataType | None, declared: bool, bounds: Bounds
) -> pa.Array | None:
    """Objects with every field cast whole; None: values need a look."""
    if item is not None and not pa.types.is_struct(item):
        return None
    given = dict(_fields(flat))
    known = {} if item is None else {f.name: f.type for f in item}
    new = [name for name in given if name not in known]
    if len(given) != flat.type.num_fields or (new and declared) or not _may_be_new(new, bounds):
        return None
    if len(flat) * len(known | given) > bounds.cells:
        return None
    fields: dict[str, pa.Array] = {}
    for name in [*known, *new]:
        values = given.get(name)
        if values is None or values.null_count == len(values):
            if name in known:
                fields[name] = pa.nulls(len(flat), known[name])
            continue
        if pa.types.is_nested(values.type):
            return None
        column = cast_arrow(values, known.get(name), declared=declared)
        if column is None:
            return None
        fields[name] = column
    if not fields:
        return None
    kinds = [pa.field(name, column.type) for name, column in fields.items()]
    return pa.StructArray.from_arrays(list(fields.values()), fields=kinds)


def _may_be_new(names: list[str], bounds: Bounds) -> bool:
    return len(names) <= bounds.fields and all(0 < len(name) <= 256 for name in names)


def _fields(flat: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    names = [flat.type.field(index).name for index in range(flat.type.num_fields)]
    return zip(names, flat.flatten(), strict=True)
