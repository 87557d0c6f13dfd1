"""Digests of rows by value, and of sets of rows as sums.

A set has the sum of its rows' LtHash16 lanes, so order does not count and rows come and go by addition and
subtraction: Bellare and Micciancio, EUROCRYPT 1997; Lewi et al., "Securing Update Propagation with
Homomorphic Hashing", 2019.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3
from numpy.typing import NDArray

from outrider.assertions.batch.columns import is_tensor

LANES = 1024
NOT_CONTENT = frozenset({"ts"})
"""Columns that a version's digest ignores: the same rows may be recorded again."""
_PART_ROWS = 8192
"""Rows serialized at once, which bounds memory for wide tables."""
_EXACT = 2**53
_REAL, _WHOLE, _TEXT, _BYTES, _NUMBERS, _OTHER, _TIME = b"fistloT"
_NUMBER = np.dtype([("key", "<u8"), ("kind", "u1"), ("value", "<f8")])
_HEAD = np.dtype([("key", "<u8"), ("kind", "u1"), ("length", "<u8")])

Lanes = NDArray[np.uint16]
"""Sum of the lanes of a set of rows, shape (1024,), modulo 2**16."""


def digests_of(table: pa.Table) -> list[bytes]:
    """SHA-256 of content, then of labels: 64 bytes a row."""
    labels = [name for name in table.column_names if name.startswith("label.")]
    content = [name for name in table.column_names if name not in NOT_CONTENT and name not in labels]
    return list(map(bytes.__add__, row_digests(table, content), row_digests(table, labels)))


def row_digests(table: pa.Table, names: Sequence[str]) -> list[bytes]:
    """Equal values (1, 1.0, true) have equal digests. Null columns do not count."""
    numbers = sorted(name for name in names if _is_number(table.schema.field(name).type))
    others = sorted(set(names).difference(numbers))
    nothing = pa.scalar(b"", pa.large_binary())  # made here: a scalar of a module imports pandas
    found: list[bytes] = []
    for start in range(0, table.num_rows, _PART_ROWS):
        part = table.slice(start, _PART_ROWS)
        cells = [_number_cells([_whole(part.column(name)) for name in numbers], numbers)] if numbers else []
        for name in others:
            cells += _cells(_whole(part.column(name)), name)
        rows = pc.binary_join_element_wise(*cells, nothing, null_handling="skip") if cells else None
        streams = [b""] * part.num_rows if rows is None else rows.to_pylist()
        found += [sha256(stream).digest() for stream in streams]
    return found


def lanes(digests: Sequence[bytes]) -> Lanes:
    total = np.zeros(LANES, dtype=np.uint16)
    for start in range(0, len(digests), LANES):
        some = digests[start : start + LANES]
        stream = b"".join([blake3(digest).digest(length=2 * LANES) for digest in some])
        total += np.frombuffer(stream, dtype="<u2").reshape(len(some), LANES).sum(axis=0, dtype=np.uint16)
    return total


def version_digest(columns: Mapping[str, str], rows: int, state: Lanes) -> str:
    schema = json.dumps(sorted(columns.items()), ensure_ascii=True)
    content = f"dataset 2\0{schema}\0{rows}\0".encode() + state.astype("<u2").tobytes()
    return sha256(content).hexdigest()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column


def _key(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()


def _number_cells(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """Cells of all numeric columns of a row: key, kind and 8 bytes each."""
    values = np.empty((len(columns), len(columns[0])), dtype="<f8")
    wholes: dict[int, tuple[NDArray[np.intp], Any]] = {}
    for place, column in enumerate(columns):
        plain = _numbers(column)
        values[place] = plain
        inexact = _inexact(plain)
        if len(inexact):
            wholes[place] = inexact, plain[inexact].astype("<u8", casting="unsafe").view("<f8")
    _make_canonical(values)
    cells = np.empty(values.T.shape, dtype=_NUMBER)
    cells["key"] = np.frombuffer(b"".join(map(_key, names)), dtype="<u8")
    cells["kind"] = _REAL
    cells["value"] = values.T
    for place, (rows, bits) in wholes.items():
        cells["kind"][rows, place] = _WHOLE
        cells["value"][rows, place] = bits
    if not any(column.null_count for column in columns):
        return _binary(np.full(len(cells), _NUMBER.itemsize * len(columns)), cells)
    given = np.stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns], axis=1)
    return _binary(given.sum(axis=1, dtype=np.int64) * _NUMBER.itemsize, cells[given])


def _numbers(array: pa.Array) -> NDArray[Any]:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    found: NDArray[Any] = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    return found


def _make_canonical(reals: NDArray[np.float64]) -> None:
    """Equal numbers get equal bytes: -0.0 is 0.0, and there is one NaN."""
    reals += 0.0
    odd = np.isnan(reals)
    if odd.any():
        reals[odd] = np.nan


def _inexact(values: NDArray[Any]) -> NDArray[np.intp]:
    """Positions of whole numbers that no float equals."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < _NUMBER["value"].itemsize or not len(values):
        return np.empty(0, np.intp)
    if int(values.max()) <= _EXACT and int(values.min()) >= -_EXACT:
        return np.empty(0, np.intp)
    return np.array([place for place, value in enumerate(values.tolist()) if float(value) != value], np.intp)


def _binary(lengths: NDArray[np.int64], content: NDArray[Any]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def _cells(array: pa.Array, name: str) -> list[pa.Array]:
    """Cells in two pieces, head and bytes; null where the value is null."""
    if array.null_count == len(array):
        return []
    kind, content = _content(array)
    content = content.cast(pa.large_binary())
    heads = np.empty(len(array), dtype=_HEAD)
    heads["key"] = np.frombuffer(_key(name), dtype="<u8")
    heads["kind"] = kind
    heads["length"] = np.diff(_offsets(content))
    return [_masked(_binary(np.full(len(array), _HEAD.itemsize), heads), content), content]


def _offsets(content: pa.Array) -> NDArray[np.int64]:
    return np.frombuffer(content.buffers()[1], np.int64, len(content) + 1, content.offset * 8)


def _content(array: pa.Array) -> tuple[int, pa.Array]:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _TEXT, array
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _BYTES, array
    if pa.types.is_timestamp(kind):
        ticks = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        values = ticks.fill_null(0).to_numpy(zero_copy_only=False).astype("<i8")
        return _TIME, _masked(_binary(np.full(len(array), 8), values), array)
    if (numbers := _lists(array)) is not None:
        return _NUMBERS, numbers
    texts = [
        None if value is None else json.dumps(_plain(value), sort_keys=True).encode()
        for value in array.to_pylist()
    ]
    return _OTHER, pa.array(texts, pa.large_binary())


def _lists(array: pa.Array) -> pa.Array | None:
    """Bytes of lists of numbers without nulls, as floats; None for other arrays."""
    if is_tensor(array.type):
        array = array.storage
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)) or not _is_number(kind.value_type):
        return None
    flat = array.flatten()  # leaves out what lies under nulls
    if flat.null_count or (pa.types.is_integer(flat.type) and _is_large(flat)):
        return None
    elements = _numbers(flat).astype("<f8")
    _make_canonical(elements)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return _masked(_binary(lengths.astype(np.int64) * 8, elements), array)


def _is_large(flat: pa.Array) -> bool:
    ends = pc.min_max(flat).as_py()
    return bool(len(flat)) and (ends["max"] > _EXACT or ends["min"] < -_EXACT)


def _masked(content: pa.Array, like: pa.Array) -> pa.Array:
    if not like.null_count:
        return content
    return pc.if_else(like.is_valid(), content, pa.scalar(None, content.type))


def _plain(value: Any) -> Any:
    """JSON form that is equal for equal values: no null fields, numbers as floats if exact."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(entry) for entry in value]
    if isinstance(value, (bool, int, float)):
        number = float(value) if abs(value) <= _EXACT or isinstance(value, float) else value
        return struct.pack("<d", number + 0.0).hex() if isinstance(number, float) else f"i{number}"
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, (date, datetime, time)):
        return {"time": value.isoformat()}
    return value if isinstance(value, str) or value is None else repr(value)
