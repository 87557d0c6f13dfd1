"""Digests of rows by value, and of sets of rows.

A version's digest comes from that of its parent and the changed rows alone. A row digest is two SHA-256, of
the row's content and of its labels. A set of rows has the sum of their LtHash16 lanes (Bellare and
Micciancio, *A New Paradigm for Collision-Free Hashing*, EUROCRYPT 1997; Lewi et al., *Securing Update
Propagation with Homomorphic Hashing*, 2019; BLAKE3 expands): order and files do not count, and rows come and
go by addition and subtraction.
"""

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3
from numpy.typing import NDArray

from outrider.assertions.columns import is_tensor

LANES = 1024
NOT_CONTENT = frozenset({"ts"})
"""Columns of a version that its digest leaves out: the same rows may be recorded again."""
_PART_ROWS = 8192
"""Rows that are laid out at once: what the bytes of a wide table take stays small."""
_EXACT = 2**53
_REAL, _WHOLE, _TEXT, _BYTES, _NUMBERS, _OTHER, _TIME = b"fistloT"

Lanes = NDArray[np.uint16]
"""Sum of the lanes of a set of rows, shape (1024,), modulo 2**16."""


def digests_of(table: pa.Table) -> list[bytes]:
    """Digest of each row, 64 bytes: of content, then of labels."""
    labels = [name for name in table.column_names if name.startswith("label.")]
    content = [name for name in table.column_names if name not in NOT_CONTENT and name not in labels]
    both = zip(row_digests(table, content), row_digests(table, labels), strict=True)
    return [of_content + of_labels for of_content, of_labels in both]


def row_digests(table: pa.Table, names: Sequence[str]) -> list[bytes]:
    """SHA-256 of the non-null values of each row, 32 bytes.

    By value: 1 and 1.0 are equal, true and 1 too, whatever the width; null columns do not count.
    """
    numbers = sorted(name for name in names if _is_number(table.schema.field(name).type))
    others = sorted(set(names).difference(numbers))
    found: list[bytes] = []
    for start in range(0, table.num_rows, _PART_ROWS):
        part = table.slice(start, _PART_ROWS)
        cells = [_number_cells([part.column(name) for name in numbers], numbers)] if numbers else []
        cells += [_cells(_whole(part.column(name)), name) for name in others]
        rows = pc.binary_join_element_wise(*cells, _bytes(b""), null_handling="skip") if cells else None
        streams = [b""] * part.num_rows if rows is None else rows.to_pylist()
        found += [hashlib.sha256(stream).digest() for stream in streams]
    return found


def lanes(digests: Sequence[bytes]) -> Lanes:
    """Sum of the lanes of some rows, by their digests."""
    total = np.zeros(LANES, dtype=np.uint16)
    for start in range(0, len(digests), LANES):
        some = digests[start : start + LANES]
        stream = b"".join([blake3(digest).digest(length=2 * LANES) for digest in some])
        total += np.frombuffer(stream, dtype="<u2").reshape(len(some), LANES).sum(axis=0, dtype=np.uint16)
    return total


def version_digest(columns: Mapping[str, str], rows: int, state: Lanes) -> str:
    """SHA-256 of schema, number of rows and set of rows, in hex."""
    schema = json.dumps(sorted(columns.items()), ensure_ascii=True)
    content = f"dataset 2\0{schema}\0{rows}\0".encode() + state.astype("<u2").tobytes()
    return hashlib.sha256(content).hexdigest()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column


def _key(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def _number_cells(columns: Sequence[pa.ChunkedArray], names: Sequence[str]) -> pa.Array:
    """Cells of all numeric columns of a row one behind the other: key, kind and 8 bytes each."""
    rows = len(columns[0])
    cells = np.empty((rows, len(columns), 17), dtype=np.uint8)
    given = np.ones((rows, len(columns)), dtype=np.bool_)
    for place, (column, name) in enumerate(zip(columns, names, strict=True)):
        array = _whole(column)
        cells[:, place, :8] = np.frombuffer(_key(name), dtype=np.uint8)
        values, kinds = _number_bytes(array)
        cells[:, place, 8] = kinds
        cells[:, place, 9:] = values
        if array.null_count:
            given[:, place] = array.is_valid().to_numpy(zero_copy_only=False)
    lengths = given.sum(axis=1, dtype=np.int64) * 17
    flat = cells.reshape(rows, -1) if given.all() else cells[given]
    return _binary(lengths, flat.tobytes())


def _number_bytes(array: pa.Array) -> tuple[NDArray[np.uint8], Any]:
    """Little-endian bytes of each number, shape (rows, 8), and its kind: whole where no real is exact."""
    kind = array.type
    if pa.types.is_boolean(kind):
        values = array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype("<f8")
        return values.view(np.uint8).reshape(-1, 8), _REAL
    plain = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    reals = np.ascontiguousarray(plain, dtype="<f8") + 0.0  # -0.0 equals 0.0
    if pa.types.is_floating(kind):
        reals[np.isnan(reals)] = np.nan
        return reals.view(np.uint8).reshape(-1, 8), _REAL
    large = (plain > _EXACT) | (plain < -_EXACT) if plain.dtype != np.uint64 else plain > np.uint64(_EXACT)
    cells = reals.view(np.uint8).reshape(-1, 8)
    if not large.any():
        return cells, _REAL
    inexact = large & (reals.astype(object).astype(int) != plain.astype(object))
    cells[inexact] = plain.astype("<u8", casting="unsafe")[inexact].view(np.uint8).reshape(-1, 8)
    return cells, np.where(inexact, np.uint8(_WHOLE), np.uint8(_REAL))


def _bytes(content: bytes) -> pa.Scalar:
    return pa.scalar(content, pa.large_binary())


def _binary(lengths: NDArray[np.int64], content: bytes) -> pa.Array:
    """Binary array of consecutive pieces of ``content``."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def _cells(array: pa.Array, name: str) -> pa.Array:
    """Cell of each row: key, kind, length and bytes; null where the value is null."""
    kind, content = _content(array)
    content = content.cast(pa.large_binary())
    lengths = pc.fill_null(pc.binary_length(content), 0).to_numpy(zero_copy_only=False).astype("<u8")
    sizes = _binary(np.full(len(array), 8, dtype=np.int64), lengths.tobytes())
    head = _bytes(_key(name) + bytes([kind]))
    return pc.binary_join_element_wise(head, sizes, content, _bytes(b""))


def _content(array: pa.Array) -> tuple[int, pa.Array]:
    """Kind of the values and their bytes."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _TEXT, array
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _BYTES, array
    if pa.types.is_timestamp(kind):
        ticks = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        values = ticks.fill_null(0).to_numpy(zero_copy_only=False).astype("<i8")
        return _TIME, _masked(_binary(np.full(len(array), 8, dtype=np.int64), values.tobytes()), array)
    if (numbers := _lists(array)) is not None:
        return _NUMBERS, numbers
    texts = [
        None if value is None else json.dumps(_plain(value), sort_keys=True).encode()
        for value in array.to_pylist()
    ]
    return _OTHER, pa.array(texts, pa.large_binary())


def _lists(array: pa.Array) -> pa.Array | None:
    """Bytes of lists of numbers without nulls, as reals; None where they are something else."""
    if is_tensor(array.type):
        array = array.storage
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)) or not _is_number(kind.value_type):
        return None
    flat = array.flatten()  # leaves out what lies under nulls
    if flat.null_count or (pa.types.is_integer(flat.type) and _is_large(flat)):
        return None
    elements, _ = _number_bytes(flat)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return _masked(_binary(lengths.astype(np.int64) * 8, elements.tobytes()), array)


def _is_large(flat: pa.Array) -> bool:
    ends = pc.min_max(flat).as_py()
    return bool(len(flat)) and (ends["max"] > _EXACT or ends["min"] < -_EXACT)


def _masked(content: pa.Array, like: pa.Array) -> pa.Array:
    if not like.null_count:
        return content
    return pc.if_else(like.is_valid(), content, pa.scalar(None, content.type))


def _plain(value: Any) -> Any:
    """Value as JSON has it, equal for equal values: without null fields, numbers as reals if exact."""
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
