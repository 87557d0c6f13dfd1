"""Column of one tensor of the Open Inference Protocol."""

import base64
import binascii
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch.columns import tensor_array
from outrider.monitor.intake.column_types import Values

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # the upper half of a float32: numpy has no such type
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
_PLAIN = {int, float, bool}
_LENGTH = struct.Struct("<I")


def binary_column(raw: memoryview, shape: Sequence[int], datatype: str, *, keep: bool) -> Values:
    """Column of a tensor in binary, little-endian; ``keep``: shape ``(rows, 1)`` stays one of vectors."""
    size = math.prod(shape)
    if datatype == "BYTES":
        return _nested(_texts(_elements(raw, size)), shape, keep=keep)
    dtype = DTYPES[datatype]
    if len(raw) != size * dtype.itemsize:
        raise ValueError(
            f"expected {size * dtype.itemsize} bytes for {datatype} {list(shape)}, got {len(raw)}"
        )
    if datatype == "BOOL":
        return _numbers(np.frombuffer(raw, np.uint8) != 0, shape, keep=keep)
    values = np.frombuffer(raw, dtype)
    if datatype == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    elif datatype == "FP16":
        with np.errstate(invalid="ignore"):  # signaling NaN: refused with its row
            values = values.astype(np.float32)
    return _numbers(values, shape, keep=keep)


def json_column(
    data: Any, shape: Sequence[int], datatype: str, *, keep: bool, base64_text: bool = False
) -> Values:
    """Column of a tensor in JSON, flat or nested.

    Numbers in 32 or 16 bits are rounded as in binary. A value of another type stays what it is, so that only
    its row is refused.
    """
    size = math.prod(shape)
    if not isinstance(data, list):
        raise ValueError(f"data: a list of {size} values expected, got {type(data).__name__}")
    flat = _flat(data, size)
    if datatype == "BYTES":
        return _nested(_from_base64(flat) if base64_text else flat, shape, keep=keep)
    values = _array(flat)
    if values is None:
        return _nested(flat, shape, keep=keep)
    return _numbers(_as_datatype(values, datatype), shape, keep=keep)


def _numbers(values: NDArray[Any], shape: Sequence[int], *, keep: bool) -> pa.Array:
    inner = _inner(shape, keep=keep)
    if not inner:
        return pa.array(values)
    if values.dtype == np.bool_:
        values = values.view(np.uint8)
    return tensor_array(values.reshape(shape[0], *inner))


def _inner(shape: Sequence[int], *, keep: bool) -> Sequence[int]:
    """Shape of one row; empty for a plain value."""
    inner = shape[1:]
    return () if not keep and math.prod(inner) == 1 and len(inner) <= 1 else inner


def _nested(flat: list[Any], shape: Sequence[int], *, keep: bool) -> list[Any]:
    """Rows that are no numbers; lists of any depth become one list per row."""
    inner = _inner(shape, keep=keep)
    if not inner:
        return flat
    width = math.prod(inner)
    return [flat[start : start + width] for start in range(0, len(flat), width)]


def _array(flat: list[Any]) -> NDArray[Any] | None:
    # Types first: numpy would make one wide text of each element as soon as one of them is a text.
    if not set(map(type, flat)) <= _PLAIN:
        return None
    values = np.array(flat)
    return values if values.dtype.kind in "iufb" else None  # integers beyond 64 bits make it "O"


def _as_datatype(values: NDArray[Any], datatype: str) -> NDArray[Any]:
    if datatype == "BOOL":
        return values != 0 if np.isin(values, (0, 1)).all() else values
    if datatype in ("FP32", "FP16", "BF16", "FP64"):
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float64 if datatype == "FP64" else np.float32)
            return narrow.astype(np.float16).astype(np.float32) if datatype == "FP16" else narrow
    return values


def _flat(data: list[Any], size: int) -> list[Any]:
    while data and isinstance(data[0], list):
        if not all(isinstance(one, list) for one in data):
            raise ValueError("data: nested unevenly")
        data = [value for one in data for value in one]
    if len(data) != size:
        raise ValueError(f"data: {size} values expected as the shape says, got {len(data)}")
    return data


def _elements(raw: memoryview, size: int) -> list[bytes]:
    """Elements of BYTES: each after its length in four bytes."""
    elements: list[bytes] = []
    position, end = 0, len(raw)
    while position < end:
        if position + 4 > end:
            raise ValueError(f"element {len(elements)} is cut off")
        start = position + 4
        position = start + _LENGTH.unpack_from(raw, position)[0]
        if position > end:
            raise ValueError(f"element {len(elements)} is cut off: {position - start} bytes announced")
        elements.append(bytes(raw[start:position]))
    if len(elements) != size:
        raise ValueError(f"{size} elements expected, got {len(elements)}")
    return elements


def _texts(elements: list[bytes]) -> list[Any]:
    """Texts where the bytes are UTF-8, else the bytes."""
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError:
        return [_text(element) for element in elements]


def _text(element: bytes) -> str | bytes:
    try:
        return element.decode()
    except UnicodeDecodeError:
        return element


def _from_base64(flat: list[Any]) -> list[Any]:
    try:
        return [base64.b64decode(value, validate=True) if isinstance(value, str) else value for value in flat]
    except (binascii.Error, ValueError):
        raise ValueError("data: base64 expected, as its content type says") from None
