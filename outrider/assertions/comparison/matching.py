"""Comparison of answers with labels, by type.

All code that counts errors uses this definition of "right".

An answer and its label often come from different sources: a service says ``True`` where a person clicks
``1``, a JSON client sends the class ``"1"``, a tensor holds float32, one missing value makes a column of
whole numbers one of floats. Two values are equal if they are

- texts that are equal, letter by letter: ``"01"`` is not ``"1"``, unless declared classes say so;
- numbers and booleans of equal value, whole ones exactly, fractional ones within ``TOLERANCE``, both in the
precision of the coarser type;
- a text and a number (or boolean) that it spells: ``"1"``, ``"1.0"`` and ``1``; ``"true"`` and ``True``;
- lists, objects and tensors of which every part is equal.

Missing values (null or NaN) are equal to nothing.
"""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from outrider.assertions.batch.columns import from_values, is_tensor
from outrider.assertions.batch.pandas_types import is_pandas_null

TOLERANCE = 1e-6
"""Relative tolerance for fractional numbers, the rounding error of float32."""
NUMERIC_SHARE = 0.05
"""A target is numeric if more than this share of its answers is fractional."""
_WORDS = {"true": True, "false": False}
_WHOLE = re.compile(r"[+-]?\d+")
_NUMERAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_ABSENT_CLASS = -1

Bools = NDArray[np.bool_]
Classes = Sequence[int | str]


def same(answer: Any, label: Any) -> bool:
    """True if an answer equals a label; types may differ.

    Examples
    --------
    >>> same(True, 1), same("1", 1.0), same("01", "1"), same(np.float32(0.1), 0.1), same(None, None)
    (True, True, False, True, False)
    >>> same(2**53 + 1, 2**53), same([{"x": 1}], [{"x": 1.0}])
    (False, True)
    """
    return _equal(_plain(answer), _plain(label))


def matches(answers: ArrayLike | pa.Array, labels: ArrayLike | pa.Array, *, classes: Classes = ()) -> Bools:
    """Mask of answers that equal their labels, shape (rows,); False if missing.

    Parameters
    ----------
    answers, labels
        Arrow, numpy, pandas or Python columns of one length.
    classes
        Declared classes of the target: values are first mapped to one of them.

    Examples
    --------
    >>> matches([True, False, None], [1, 1, 1]).tolist()
    [True, False, False]
    >>> matches(["1.0", "2"], [1, 3], classes=["1", "2", "3"]).tolist()
    [True, False]
    """
    left, right = _column(answers), _column(labels)
    if len(left) != len(right):
        raise ValueError(f"as many labels as answers expected, got {len(right)} for {len(left)}")
    found = _matches(left, right)
    if classes:
        one, two = class_numbers(left, classes), class_numbers(right, classes)
        known = (one != _ABSENT_CLASS) & (two != _ABSENT_CLASS)
        found = np.where(known, one == two, found)
    return found


def class_numbers(values: ArrayLike | pa.Array, classes: Classes) -> NDArray[np.intp]:
    """Index of each value among the classes, -1 for none.

    The type of a value does not matter: a class of its own type is preferred, then an equal class, then the
    only class that spells the same number.

    Examples
    --------
    >>> class_numbers(["1", "7", 0.0, True], [0, 1]).tolist()
    [1, -1, 0, 1]
    >>> class_numbers(["1.0", "01"], ["1", "01"]).tolist()
    [-1, 1]
    """
    column = _column(values)
    if isinstance(column, pa.Array) and not (pa.types.is_nested(column.type) or is_tensor(column.type)):
        codes, distinct = _encoded(column)
        places = np.array([_class_of(value, classes) for value in distinct] + [_ABSENT_CLASS], dtype=np.intp)
        return np.asarray(places[codes])  # -1, of nulls, is the last
    return np.array([_class_of(value, classes) for value in _values(column)], dtype=np.intp)


def is_numeric(answers: ArrayLike | pa.Array) -> bool:
    """True for a numeric target: more than ``NUMERIC_SHARE`` is fractional.

    Examples
    --------
    >>> is_numeric([3.0, 1.0, float("nan")]), is_numeric([3.25, 1.5, 2.0]), is_numeric(["3.25"])
    (False, True, False)
    """
    column = _column(answers)
    if isinstance(column, pa.Array) and not pa.types.is_floating(column.type):
        return False
    numbers = [value for value in _values(column) if _is_number(value)]
    finite = [value for value in numbers if isinstance(value, int) or math.isfinite(value)]
    fractional = sum(not isinstance(value, int) and not float(value).is_integer() for value in finite)
    return fractional > NUMERIC_SHARE * len(finite)


def spelled_like(labels: Sequence[Any], answers: Sequence[Any]) -> list[Any]:
    """Labels replaced by answers that equal them, in the answers' spelling.

    Other labels stay unchanged. Tables and group metrics can then compare values as they are written.

    Examples
    --------
    >>> spelled_like([1, "0", 7], [True, False, True])
    [True, False, 7]
    """
    spellings: dict[Any, list[Any]] = {}
    for answer in answers:
        for key in _keys(answer)[:1]:
            spellings.setdefault(key, [])
            if answer not in spellings[key]:
                spellings[key].append(answer)
    found = []
    for label in labels:
        options = [each for key in _keys(label) for each in spellings.get(key, ()) if same(each, label)]
        own = [each for each in options if type(each) is type(label)]
        found.append((own or options or [label])[0])
    return found


def number_of(text: str) -> int | float | bool | None:
    """Number or boolean that a text spells; None for other text.

    Examples
    --------
    >>> number_of("12"), number_of("1e3"), number_of("True"), number_of("1 apple"), number_of("nan")
    (12, 1000.0, True, None, None)
    """
    if _WHOLE.fullmatch(text) and text.isascii() and len(text) <= 300:
        return int(text)
    if _NUMERAL.fullmatch(text) and text.isascii():
        return float(text)
    return _WORDS.get(text.lower())


def _matches(left: pa.Array | list[Any], right: pa.Array | list[Any]) -> Bools:
    if isinstance(left, list) or isinstance(right, list):
        return _by_row(left, right)
    kinds = left.type, right.type
    if any(map(pa.types.is_null, kinds)):
        return np.zeros(len(left), dtype=np.bool_)
    if all(map(_is_number_type, kinds)):
        return _equal_numbers(left, right)
    if all(map(pa.types.is_string, kinds)):
        return np.asarray(pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False))
    if all(map(is_tensor, kinds)):
        return _equal_tensors(left, right)
    if any(pa.types.is_nested(kind) or is_tensor(kind) for kind in kinds):
        return _by_row(left, right)
    return _by_pair(left, right)


def _by_row(left: pa.Array | list[Any], right: pa.Array | list[Any]) -> Bools:
    pairs = zip(_values(left), _values(right), strict=True)
    return np.fromiter((_equal(one, other) for one, other in pairs), dtype=np.bool_, count=len(left))


def _by_pair(left: pa.Array, right: pa.Array) -> Bools:
    """Mask of equal pairs; each distinct pair of values is compared once."""
    (ours, answers), (theirs, labels) = _encoded(left), _encoded(right)
    known = (ours >= 0) & (theirs >= 0)
    pairs, place = np.unique(ours[known] * max(len(labels), 1) + theirs[known], return_inverse=True)
    width = max(len(labels), 1)
    verdicts = [_equal(answers[pair // width], labels[pair % width]) for pair in pairs.tolist()]
    found = np.zeros(len(left), dtype=np.bool_)
    found[known] = np.array(verdicts, dtype=np.bool_)[place]
    return found


def _encoded(column: pa.Array) -> tuple[NDArray[np.int64], list[Any]]:
    """Index of each row's distinct value, -1 for null, and the distinct values."""
    encoded = column.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, _values(encoded.dictionary)


def _equal_numbers(left: pa.Array, right: pa.Array) -> Bools:
    known = np.asarray(pc.and_(left.is_valid(), right.is_valid()).to_numpy(zero_copy_only=False))
    one, two = _numpy(left), _numpy(right)
    if one.dtype.kind != "f" and two.dtype.kind != "f":
        if one.dtype != two.dtype:  # of one signed and one not
            known = known & (one >= 0) & (two >= 0)
            one, two = one.astype(np.uint64), two.astype(np.uint64)
        return np.asarray(known & (one == two))
    return np.asarray(known & _near(one, two))


def _numpy(column: pa.Array) -> NDArray[Any]:
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.uint64() if column.type == pa.uint64() else pa.int64())
    values: NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values


def _near(one: NDArray[Any], two: NDArray[Any]) -> Bools:
    """Mask of numbers equal within the tolerance of the coarser float type."""
    coarse = min(
        (each.dtype for each in (one, two) if each.dtype.kind == "f"), key=lambda kind: kind.itemsize
    )
    with np.errstate(invalid="ignore", over="ignore"):
        equal = one.astype(coarse) == two.astype(coarse)
        wide, other = one.astype(np.float64), two.astype(np.float64)
        fractional = (wide != np.floor(wide)) | (other != np.floor(other))
        apart = np.abs(wide - other) <= TOLERANCE * np.maximum(np.abs(wide), np.abs(other))
    finite = np.isfinite(wide) & np.isfinite(other)
    # A number that overflows the coarser type is not what that type calls infinite.
    return np.asarray((equal & (np.isfinite(wide) == np.isfinite(other))) | (finite & fractional & apart))


def _equal_tensors(left: pa.Array, right: pa.Array) -> Bools:
    if left.type.shape != right.type.shape:
        return np.zeros(len(left), dtype=np.bool_)
    known = np.asarray(pc.and_(left.is_valid(), right.is_valid()).to_numpy(zero_copy_only=False))
    elements = [each.storage.take(pa.array(np.flatnonzero(known))).flatten() for each in (left, right)]
    found = np.zeros(len(left), dtype=np.bool_)
    found[known] = _equal_numbers(*elements).reshape(int(known.sum()), -1).all(axis=1)
    return found


def _class_of(value: Any, classes: Classes) -> int:
    value = _plain(value)
    if value is None:
        return _ABSENT_CLASS
    equal = [place for place, each in enumerate(classes) if _equal(value, each)]
    own = [place for place in equal if isinstance(classes[place], str) == isinstance(value, str)]
    if not equal and isinstance(value, str) and (number := number_of(value)) is not None:
        spelled = [number_of(each) if isinstance(each, str) else each for each in classes]
        equal = [place for place, each in enumerate(spelled) if _equal(number, each)]
        equal = equal if len(equal) == 1 else []
    return (own or equal or [_ABSENT_CLASS])[0]


def _equal(one: Any, other: Any) -> bool:
    """Equality of two plain Python values."""
    if one is None or other is None:
        return False
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, str) and _is_number(other):
        one = number_of(one)
    elif isinstance(other, str) and _is_number(one):
        other = number_of(other)
    if _is_number(one) and _is_number(other):
        return _equal_scalars(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal_parts, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal_parts(one[name], other[name]) for name in one)
    return type(one) is type(other) and bool(one == other)


def _equal_parts(one: Any, other: Any) -> bool:
    """Equality of parts of lists or objects; two missing parts are equal."""
    one, other = _plain(one), _plain(other)
    return (one is None and other is None) or _equal(one, other)


def _equal_scalars(one: Any, other: Any) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    try:
        left, right = (
            np.asarray([value], dtype=value.dtype if isinstance(value, np.floating) else np.float64)
            for value in (one, other)
        )
    except OverflowError:  # a whole number beyond any float
        return False
    return bool(_near(left, right)[0])


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.floating)


def _is_number_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _plain(value: Any) -> Any:
    """Python value; None if missing; numpy floats keep their precision."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.floating):
        return None if np.isnan(value) else value
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Decimal):
        if value.is_nan():
            return None
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, tuple):
        return list(value)
    if is_pandas_null(value):
        return None
    return value


def _values(column: pa.Array | list[Any]) -> list[Any]:
    if isinstance(column, list):
        return column
    if pa.types.is_floating(column.type) and column.type != pa.float64():  # how fine they are must stay
        column = [
            value if is_known else None
            for value, is_known in zip(_numpy(column), column.is_valid().to_pylist(), strict=True)
        ]
        return [_plain(value) for value in column]
    return [_plain(value) for value in column.to_pylist()]


def _column(values: ArrayLike | pa.Array) -> pa.Array | list[Any]:
    """Arrow array if the values have one type, else a list of Python values."""
    if isinstance(values, list | tuple):
        values = np.array([*values, None], dtype=object)[:-1]
    elif not isinstance(values, pa.Array | pa.ChunkedArray):
        values = np.asarray(values)
    if _holds_coarse(values):  # Arrow would widen or even truncate them next to other types
        return [_plain(value) for value in values]
    try:
        column = from_values(values)
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return [_plain(value) for value in np.asarray(values)]
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    return column


def _holds_coarse(values: Any) -> bool:
    """True if some values are floats of lower precision than Python's."""
    if not isinstance(values, np.ndarray) or values.dtype != object:
        return False
    return any(isinstance(value, np.floating) and value.dtype != np.float64 for value in values)


def _keys(value: Any) -> list[Any]:
    """Lookup keys for equal values; a fractional number may lie on the border of two keys."""
    value = _plain(value)
    if isinstance(value, str):
        number = number_of(value)
        value = value if number is None else number
    if not _is_number(value):
        return [value] if isinstance(value, str) else [] if value is None else [repr(value)]
    if isinstance(value, int) or not math.isfinite(value) or float(value).is_integer():
        return [int(value) if math.isfinite(value) else float(value)]
    places = (f"{float(value) * (1 + by):.3e}" for by in (0.0, -1e-5, 1e-5))
    return list(dict.fromkeys(places))
