"""Column types at the border: allowed values, how a type is learned, messages on misfits.

Whole columns are converted at once; only when that fails is every value looked at.
"""

import math
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import TIME
from outrider.assertions.batch.columns import is_tensor, tensor_array, tensor_type, values_of
from outrider.dataops.payloads.columns import (
    NULLABLE,
    PAYLOAD,
    Payload,
    is_payload,
    parse_form,
    payload_array,
)
from outrider.dataops.state.stored_texts import SURROGATE, has_surrogate

from .rejections import Misfits

Values: TypeAlias = list[Any] | pa.Array

_SIMPLE = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "timestamp": TIME,
}
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
_NUMBERS = {int, float}
_LEAVES = {int, float, bool, np.ndarray}
_MAX_DIMENSIONS = 16
_NONE = {type(None)}
_MOST_FLOAT = sys.float_info.max


def parse_type(text: str) -> pa.DataType:
    """Arrow type of a declared column type; a ``?`` at its end says that a record may lack it."""
    text = text.removesuffix(NULLABLE)
    if text in _SIMPLE:
        return _SIMPLE[text]
    if parse_form(text) is not None:
        return PAYLOAD
    if match := re.fullmatch(r"list\((.*)\)", text, re.DOTALL):
        return pa.list_(_parse_element(match[1], text))
    match = re.fullmatch(r"tensor\(\s*(\d+(?:\s*,\s*\d+)*)\s*,?\s*\)", text)
    if match is None:
        raise ValueError(
            f"column type must be one of {', '.join(_SIMPLE)}, text, binary, image(28, 28), tensor(8, 8), "
            f"list(float) or list(left: float, label: string), got {text!r}"
        )
    return tensor_type([int(size) for size in match[1].split(",")])


def _parse_element(inner: str, text: str) -> pa.DataType:
    fields = [[word.strip() for word in part.rpartition(":")[::2]] for part in inner.split(",")]
    unknown = [kind for _, kind in fields if kind not in _SIMPLE]
    if unknown:
        raise ValueError(f"{text!r}: elements and their fields are {', '.join(_SIMPLE)}, got {unknown[0]!r}")
    names = [name for name, _ in fields]
    if names == [""] and ":" not in inner:
        return _SIMPLE[fields[0][1]]
    if "" in names or len(set(names)) < len(names):
        raise ValueError(
            f"{text!r}: every field needs a name of its own, as in list(left: float, top: float)"
        )
    return pa.struct([pa.field(name, _SIMPLE[kind]) for name, kind in fields])


def describe(kind: pa.DataType) -> str:
    """Name of a column type in the user's notation."""
    if is_list(kind):
        return "list" if pa.types.is_null(kind.value_type) else f"list({describe(kind.value_type)})"
    if is_payload(kind):
        return 'payload ({"$bytes": …} or {"$uri": …})'
    if pa.types.is_struct(kind):
        return ", ".join(f"{field.name}: {describe(field.type)}" for field in kind)
    return f"tensor({', '.join(map(str, kind.shape))})" if is_tensor(kind) else _NAMES.get(kind, str(kind))


def is_list(kind: pa.DataType) -> bool:
    """Test for lists of any length; tensors are none."""
    return bool(pa.types.is_list(kind))


def nulls(rows: int, kind: pa.DataType) -> pa.Array:
    if not is_tensor(kind):
        return pa.nulls(rows, kind)
    return pa.ExtensionArray.from_storage(kind, pa.nulls(rows, kind.storage_type))


def convert(
    values: Values, known: pa.DataType | None, *, declared: bool, depth: int = 16
) -> tuple[pa.Array | None, Misfits]:
    """Column of one type, null where a row is bad, and the misfit rows.

    Its type differs from ``known`` only where int was widened to float; None if all values are null.
    """
    if isinstance(values, pa.Array):
        array = cast_arrow(values, known, declared=declared)
        if array is not None:
            return array, Misfits()
        values = values_of(values) if not is_tensor(values.type) else nested_rows(values)
    present = set(map(type, values)) - _NONE
    if not present:
        return (None if known is None else nulls(len(values), known)), Misfits()
    kind = known if known is not None else _learn(values)
    if kind is not None and not declared and kind == pa.int64() and float in present:
        kind = pa.float64()
    if kind is None:
        reason = (
            "expected a number, text, boolean, list of these or of objects, or evenly nested list of numbers"
        )
        filled = (row for row, value in enumerate(values) if value is not None)
        return None, Misfits.of(filled, lambda row: f"{reason}, got {show(values[row])}")
    array = _all_at_once(values, kind, present)
    return (array, Misfits()) if array is not None else _apart(values, kind, depth)


def nested_rows(array: pa.Array) -> list[Any]:
    shape = tuple(array.type.shape)
    if len(shape) == 1:
        flat: list[Any] = array.storage.to_pylist()
        return flat
    return [
        None if row is None else np.array(row, dtype=object).reshape(shape).tolist()
        for row in array.storage.to_pylist()
    ]


def _learn(values: Sequence[Any]) -> pa.DataType | None:
    first = next(value for value in values if value is not None)
    if isinstance(first, Payload):
        return PAYLOAD
    if isinstance(first, list | np.ndarray):
        array = _numbers(first)
        return None if array is None or not array.size else tensor_type(array.shape)
    simple: pa.DataType | None = {
        bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), datetime: TIME
    }.get(type(first))  # fmt: skip
    return simple


def _all_at_once(values: list[Any], kind: pa.DataType, present: set[type]) -> pa.Array | None:
    """Whole column, or None when any value might not fit."""
    try:
        if kind == pa.float64():
            if not present <= _NUMBERS:
                return None
            # One sum instead of a look at each: it is finite only if all of them are.
            return pa.array(values, kind) if math.isfinite(sum(filter(None, values))) else None
        if is_payload(kind):
            return payload_array(values) if present == {Payload} else None
        if is_tensor(kind):
            return _tensor_column(values, kind) if present <= {list, np.ndarray} else None
        if kind == TIME and present == {str}:
            values = [None if text is None else _parse_time(text) for text in values]
        elif present != {_PYTHON[kind]}:
            return None
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, ValueError):
        return None


_PYTHON = {pa.int64(): int, pa.bool_(): bool, pa.string(): str, TIME: datetime}


def _apart(values: list[Any], kind: pa.DataType, depth: int) -> tuple[pa.Array, Misfits]:
    """Column of the values that fit, and the misfits; their reasons are worked out only when read."""
    types = _types_of(kind) | _NONE
    bad = [row for row, value in enumerate(values) if type(value) not in types]
    fitting = _without(values, bad)
    present = set(map(type, fitting)) - _NONE
    array = _all_at_once(fitting, kind, present) if present else nulls(len(values), kind)
    if array is None and kind == pa.float64() and present == {float}:
        numbers = np.array(fitting, np.float64)  # None is NaN here
        is_bad = ~np.isfinite(numbers)
        bad = sorted({*bad, *(row for row in np.flatnonzero(is_bad).tolist() if fitting[row] is not None)})
        array = pa.array(numbers, kind, mask=is_bad)
    elif array is None:
        is_odd = _test_of_misfits(kind, depth)
        odd = [row for row, value in enumerate(fitting) if value is not None and is_odd(value)]
        bad = sorted([*bad, *odd])
        fitting = [None if value is None else _fit(value, kind, depth) for value in _without(fitting, odd)]
        if is_tensor(kind):
            array = _tensor_column(fitting, kind)
        else:
            array = payload_array(fitting) if is_payload(kind) else pa.array(fitting, kind)
    return array, Misfits.of(bad, lambda row: _misfit(values[row], kind, depth))


def _without(values: list[Any], rows: list[int]) -> list[Any]:
    if not rows:
        return values
    rest = list(values)
    for row in rows:
        rest[row] = None
    return rest


def _types_of(kind: pa.DataType) -> set[type]:
    """Types of values that may fit a column."""
    if is_payload(kind):
        return {Payload}
    if is_tensor(kind):
        return {list, np.ndarray}
    if kind in (pa.float64(), pa.int64()):
        return _NUMBERS
    return {str, datetime} if kind == TIME else {_PYTHON[kind]}


def _test_of_misfits(kind: pa.DataType, depth: int) -> Callable[[Any], Any]:
    if kind == pa.float64():
        return lambda value: not -_MOST_FLOAT <= value <= _MOST_FLOAT  # NaN, or what becomes infinite
    if kind == pa.int64():
        return lambda value: not ((type(value) is int or value.is_integer()) and -(2**63) <= value < 2**63)
    if kind == pa.string():
        return has_surrogate
    if is_tensor(kind):
        return lambda value: len(value) != kind.shape[0] or _misfit(value, kind, depth)
    return lambda value: _misfit(value, kind, depth)


def _misfit(value: Any, kind: pa.DataType, depth: int) -> str:
    try:
        _fit(value, kind, depth)
    except ValueError as error:
        return str(error)
    return ""


def _fit(value: Any, kind: pa.DataType, depth: int) -> Any:
    python = type(value)
    if isinstance(value, Payload) and is_payload(kind):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number; send null for a missing value")
    if kind == pa.float64() and python in _NUMBERS:
        if not -_MOST_FLOAT <= value <= _MOST_FLOAT:
            raise ValueError("expected float, got an integer beyond 1e308")
        return float(value)
    if kind == pa.int64() and (python is int or (python is float and value.is_integer())):
        return _fit_int(value)
    if kind == pa.bool_() and python is bool:
        return value
    if kind == pa.string() and python is str:
        return _fit_text(value)
    if kind == TIME and python in (str, datetime):
        return _parse_time(value)
    if is_tensor(kind) and python in (list, np.ndarray):
        return _fit_tensor(value, kind, depth)
    raise ValueError(f"expected {describe(kind)}, got {show(value)}")


def _fit_tensor(value: list[Any] | NDArray[Any], kind: pa.DataType, depth: int) -> Any:
    nested = value
    for _ in range(depth):
        if not (isinstance(nested, list) and nested):
            break
        nested = nested[0]
    else:
        raise ValueError(f"nested deeper than {depth} lists (limits.depth)")
    array = _numbers(value)
    if array is None:
        raise ValueError(f"expected {describe(kind)}, got a list that is uneven or holds more than numbers")
    if array.shape != tuple(kind.shape):
        raise ValueError(f"expected {describe(kind)}, got shape ({', '.join(map(str, array.shape))})")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise ValueError("holds a number that is not finite in 32 bits; send null for a missing value")
    return array


def _numbers(nested: list[Any] | NDArray[Any]) -> Any:
    """Array of a rectangular nest of numbers, else None."""
    if isinstance(nested, np.ndarray):
        return nested
    # Types first: numpy would make one wide text of each element as soon as one of them is a text.
    if not _holds_numbers(nested, _MAX_DIMENSIONS):
        return None
    try:
        array = np.array(nested)
    except ValueError:  # uneven
        return None
    return array if array.dtype.kind in "iufb" else None  # integers beyond 64 bits make it "O"


def _holds_numbers(nested: list[Any], depth: int) -> bool:
    kinds = set(map(type, nested))
    if kinds <= _LEAVES:
        return True
    return depth > 0 and kinds == {list} and all(_holds_numbers(inner, depth - 1) for inner in nested)


def _tensor_column(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Tensor column; None when values are uneven, of another shape, or not finite."""
    shape = tuple(kind.shape)
    missing = np.array([value is None for value in values])
    if missing.all():
        return nulls(len(values), kind)
    if missing.any():
        zero = np.zeros(shape, dtype=np.float32)
        values = [zero if value is None else value for value in values]
    stacked = _numbers(values)
    if stacked is None or stacked.shape[1:] != shape:
        return None
    with np.errstate(over="ignore"):
        stacked = stacked.astype(np.float32)
    if not np.isfinite(stacked).all():
        return None
    return tensor_array(stacked, missing if missing.any() else None)


def cast_arrow(array: pa.Array, known: pa.DataType | None, *, declared: bool) -> pa.Array | None:
    """Arrow column cast whole; None: every value must be looked at."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if is_tensor(kind) or pa.types.is_fixed_size_list(kind):
        return _cast_tensor(array, known)
    target = known
    if known is None or (known == pa.int64() and not declared and pa.types.is_floating(kind)):
        target = _border_type(kind)
    if target is None or _border_type(kind) not in (target, pa.int64() if target == pa.float64() else target):
        return None
    # Below a microsecond nothing is kept; a number may lose digits, but an overflow never passes.
    is_lossy = target == pa.float64() or (pa.types.is_timestamp(kind) and kind.unit == "ns")
    try:
        column = array.cast(target, safe=not is_lossy)
    except pa.ArrowException:
        return None
    if target == pa.float64() and not pc.all(pc.is_finite(column), min_count=0).as_py():
        return None
    return column


def _border_type(kind: pa.DataType) -> pa.DataType | None:
    tests = (
        (pa.types.is_integer, pa.int64()),
        (pa.types.is_floating, pa.float64()),
        (pa.types.is_boolean, pa.bool_()),
        (pa.types.is_string, pa.string()),
        (pa.types.is_large_string, pa.string()),
    )
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return TIME
    return next((border for test, border in tests if test(kind)), None)


def _cast_tensor(array: pa.Array, known: pa.DataType | None) -> pa.Array | None:
    shape = tuple(array.type.shape) if is_tensor(array.type) else (array.type.list_size,)
    storage = array.storage if is_tensor(array.type) else array
    if is_tensor(array.type) and array.type.permutation not in (None, list(range(len(shape)))):
        return None
    values = storage.type.value_type
    if not (pa.types.is_integer(values) or pa.types.is_floating(values)) or 0 in shape:
        return None
    if known is not None and not (is_tensor(known) and tuple(known.shape) == shape):
        return None
    size = math.prod(shape)
    flat = storage.values.slice(storage.offset * size, len(storage) * size)
    missing = storage.is_null().to_numpy(zero_copy_only=False)
    if flat.null_count and not storage.null_count:
        return None
    numbers = flat.to_numpy(zero_copy_only=False).reshape(len(storage), *shape)
    if missing.any():
        numbers = numbers.copy()
        numbers[missing] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = numbers.astype(np.float32, copy=False)
    if not np.isfinite(numbers).all():
        return None
    return tensor_array(numbers, missing if missing.any() else None)


def _parse_time(value: str | datetime) -> datetime:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError(
            f"expected an RFC 3339 time with its offset, as 2026-01-05T10:00:00Z, got {show(value)}"
        )
    return time


def _fit_int(value: float) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"expected int of 64 bits, got {show(value)}")
    return int(value)


def _fit_text(text: str) -> str:
    if has_surrogate(text):
        raise ValueError(SURROGATE)
    return text


def show(value: Any) -> str:
    """Short description of a value: its JSON type and its beginning."""
    names = {bool: "boolean", int: "int", float: "float", str: "text", list: "list", dict: "object"}
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    if isinstance(value, Payload):
        return repr(value)
    text = repr(value) if not isinstance(value, list | dict) else f"of {len(value)}"
    return f"{names.get(type(value), type(value).__name__)} {text if len(text) <= 60 else text[:57] + '…'}"
