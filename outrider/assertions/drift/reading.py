"""Columns of frames, tables and batches as numbers, categories or vectors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch.columns import is_tensor, to_tensor
from outrider.assertions.batch.pandas_types import is_frame, is_series
from outrider.assertions.batch.record_columns import RecordColumns

Kind: TypeAlias = Literal["number", "category", "text", "vector"]
WORDS: dict[Kind, str] = {
    "number": "numbers",
    "category": "categories",
    "text": "texts",
    "vector": "vectors",
}
FEW_CLASSES = 50
"""Maximum number of distinct whole numbers of an output or label that are classes."""
TEXT_SHARE = 0.1
"""Distinct texts per record above which texts are free text or identifiers, compared by length."""
MOST_CATEGORIES = 10_000
"""Number of distinct texts above which texts are free text, whatever the number of records."""


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one column.

    Attributes
    ----------
    kind
        Numbers are compared by value, categories by shares, texts by length in letters.
    numbers
        Numbers or text lengths, shape (n,), NaN for missing; vectors, shape (n, d); empty for categories.
    codes
        Index of each value in ``categories``, ``len(categories)`` for missing; empty for other kinds.
    categories
        Distinct values.
    """

    kind: Kind
    numbers: NDArray[Any]
    codes: NDArray[Any]
    categories: pa.Array

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(self.codes) if self.kind == "category" else len(self.numbers)


class NotCompared(Exception):  # noqa: N818 - reads as the event it is
    """Raised for a column that cannot be compared, with the reason.

    ``window`` is ``reference`` or ``current``: the window whose values are at fault.
    """

    def __init__(self, reason: str, *, window: str = "current") -> None:
        super().__init__(reason)
        self.window = window


def columns_of(data: Any) -> Mapping[str, Any]:
    """Columns by name, in their original type.

    Parameters
    ----------
    data
        pandas frame, Arrow table or record batch, ``Batch``, or a mapping of names to columns.

    Raises
    ------
    TypeError
        If it is none of these.
    """
    if isinstance(data, RecordColumns):
        data = data.to_arrow()
    if is_frame(data):
        return {str(name): data[name] for name in data.columns}
    if isinstance(data, pa.Table | pa.RecordBatch):
        return {name: data.column(at) for at, name in enumerate(data.schema.names)}
    if isinstance(data, Mapping):
        return data
    raise TypeError(f"a frame, an Arrow table or a Batch expected, got {type(data).__name__}")


def arrow_of(column: Any) -> pa.Array:
    """Column as one Arrow array. Raises NotCompared if the values have no common type."""
    try:
        found = pa.Array.from_pandas(column) if is_series(column) else column
        if isinstance(found, np.ndarray) and found.dtype.kind == "M":
            found = found.astype("M8[us]")  # Arrow knows no minutes
        if not isinstance(found, pa.Array | pa.ChunkedArray):
            found = pa.array(found, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise NotCompared(f"values of one type expected, found {str(error).splitlines()[0]}") from None
    if isinstance(found, pa.ChunkedArray):
        found = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
    return found.cast(pa.large_string()) if pa.types.is_string_view(found.type) else found


def read_reference(column: Any, *, is_answer: bool) -> Values:
    """Values of a reference column, which determine the kind of comparison.

    Parameters
    ----------
    is_answer
        True for outputs and labels: few distinct whole numbers are classes there.

    Raises
    ------
    NotCompared
        If the type has no distance here, such as times and lists of objects.
    """
    if (plain := _numpy_of(column)) is not None and not is_answer:
        return _numbers(plain)
    array = arrow_of(column)
    kind = array.type
    if _is_number(kind):
        return _classes(array) if is_answer and _is_classes(array) else _numbers(_as_numbers(array))
    if _is_category(kind):
        found = _categories(array)
        return found if _is_closed(found, array) else _lengths(array)
    return _vectors(array)


def read_current(column: Any, reference: Values) -> Values:
    """Values of a current column, read as the kind of its reference.

    Raises NotCompared if they have another type.
    """
    if reference.kind == "number" and (plain := _numpy_of(column)) is not None:
        return _numbers(plain)
    array = arrow_of(column)
    if pa.types.is_null(array.type):
        array = array.cast(pa.float64() if reference.kind == "number" else reference.categories.type)
    is_class = reference.kind == "category" and _is_number(reference.categories.type)
    if pa.types.is_dictionary(array.type) and _is_number(array.type.value_type):
        array = array.dictionary_decode()
    if reference.kind == "number" and _is_number(array.type):
        return _numbers(_as_numbers(array))
    if is_class and (_is_number(array.type) or pa.types.is_boolean(array.type)):
        return _classes(array)
    if reference.kind == "category" and not is_class and _is_like(array.type, reference.categories.type):
        return _categories(array)
    if reference.kind == "text" and _is_category(array.type) and not pa.types.is_boolean(array.type):
        return _lengths(array)
    if reference.kind == "vector":
        found = _vectors(array)
        if found.numbers.shape[1] == reference.numbers.shape[1]:
            return found
        raise NotCompared(f"vectors of {reference.numbers.shape[1]} expected, found {found.numbers.shape[1]}")
    raise NotCompared(f"{WORDS[reference.kind]} expected as in the reference, found {array.type}")


def _numpy_of(column: Any) -> NDArray[Any] | None:
    """Values of a plain numeric column without a copy; None for others."""
    if is_series(column) and not isinstance(column.dtype, np.dtype):
        return None
    found = np.asarray(column) if is_series(column) or isinstance(column, np.ndarray) else None
    return found if found is not None and found.ndim == 1 and found.dtype.kind in "iuf" else None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_category(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_category(kind.value_type) or _is_number(kind.value_type)
    return bool(_is_text(kind) or pa.types.is_boolean(kind))


def _is_like(kind: pa.DataType, reference: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return (_is_text(value) and _is_text(reference)) or bool(value == reference)


def _none() -> NDArray[Any]:
    return np.zeros(0)


def _numbers(values: NDArray[Any]) -> Values:
    return Values("number", values, _none(), pa.nulls(0))


def _as_numbers(array: pa.Array) -> NDArray[Any]:
    if pa.types.is_decimal(array.type) or array.type == pa.float16():
        array = array.cast(pa.float64())
    found: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found


def _is_classes(array: pa.Array) -> bool:
    distinct = array.drop_null().unique()
    return len(distinct) <= FEW_CLASSES and all(float(each.as_py()).is_integer() for each in distinct)


def _classes(array: pa.Array) -> Values:
    """Whole numbers as categories."""
    return _categories(array.cast(pa.float64()))


def _categories(array: pa.Array) -> Values:
    if not pa.types.is_dictionary(array.type):
        array = pc.dictionary_encode(array)
    known = array.dictionary
    if _is_number(known.type):
        known = known.cast(pa.float64())  # nulls make floats of integers
    codes = array.indices
    if codes.null_count:
        codes = pc.fill_null(codes.cast(pa.int64()), len(known))
    return Values("category", _none(), codes.to_numpy(zero_copy_only=False), known)


def _is_closed(found: Values, array: pa.Array) -> bool:
    """True if texts are categories rather than free text or identifiers."""
    size = len(found.categories)
    known = len(array) - array.null_count
    return size <= 2 or (size <= MOST_CATEGORIES and size <= TEXT_SHARE * known) or not _is_text(
        found.categories.type
    )  # fmt: skip


def _lengths(array: pa.Array) -> Values:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    letters = pc.utf8_length(array).to_numpy(zero_copy_only=False)
    return Values("text", letters, _none(), pa.nulls(0, pa.large_string()))


def _vectors(array: pa.Array) -> Values:
    kind = array.type
    if is_tensor(kind):
        rows = to_tensor(array.drop_null(), "vectors", 0)
        flat = rows.reshape(len(rows), -1).astype(np.float64)
        return Values("vector", flat, _none(), pa.nulls(0))
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not _is_number(kind.value_type):
        raise NotCompared(f"{kind} has no distance here")
    there = array.drop_null()
    lengths = np.unique(pc.list_value_length(there).to_numpy(zero_copy_only=False))
    if len(lengths) != 1 or not lengths[0]:
        raise NotCompared(f"vectors of one length expected, found lengths {lengths[:3].tolist()}")
    numbers = there.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    return Values("vector", numbers.reshape(len(there), int(lengths[0])), _none(), pa.nulls(0))
