"""Bounds on an Arrow IPC stream, before arrays are made and decoded.

A few bytes of a stream can stand for gigabytes: compressed buffers, dictionaries with long values, views.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from outrider.monitor.http.problem import ProblemError, problem

MAX_MESSAGES = 4096
"""Batches of one stream; each costs some time, however few rows it has."""
MAX_FIELDS = 4096
"""Columns of one stream, nested fields included."""
_MAX_BUFFERS = 100_000
_FREE_BYTES = 1_048_576
_CONTINUATION = 0xFFFFFFFF
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3

Bytes: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Inflation:
    """Bounds of compressed buffers: bytes in all, and times the stream's own bytes (from 1 MiB on)."""

    max_bytes: int
    max_ratio: int


def check_messages(stream: Bytes, inflation: Inflation | None = None) -> None:
    """Check a stream by the headers of its messages; without `inflation` compressed buffers are refused."""
    inflated = buffers = 0
    try:
        for number, (message, body) in enumerate(_messages(stream)):
            if number > MAX_MESSAGES:
                raise _large(f"more than {MAX_MESSAGES} batches: send larger ones")
            header = _compressed_batch(message)
            if header is None:
                continue
            if inflation is None:
                raise bad(
                    "its buffers are compressed; send them plain and compress the body (Content-Encoding)"
                )
            for size in _inflated_sizes(stream, message, header, body):
                buffers += 1
                inflated += size
                _check_inflated(inflated, len(stream), inflation)
                if buffers > _MAX_BUFFERS:
                    raise _large(f"more than {_MAX_BUFFERS} compressed buffers: send larger batches")
    except (struct.error, IndexError):
        raise bad("the stream is truncated or malformed in a message header") from None


def check_schema(schema: pa.Schema) -> None:
    left = MAX_FIELDS
    pending = [field.type for field in schema] if len(schema) <= left else []
    if not pending and len(schema):
        raise _large(f"{len(schema)} columns, at most {MAX_FIELDS} expected")
    while pending:
        kind = pending.pop()
        left -= 1
        if left < 0 or kind.num_fields > left:
            raise _large(f"more than {MAX_FIELDS} columns and fields of columns")
        pending += [kind.field(index).type for index in range(kind.num_fields)]


def decoded_bytes(array: pa.Array) -> int:
    """Bytes of an array without its dictionaries, at least one a row; views and run-ends are refused."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return decoded_bytes(array.storage)
    if pa.types.is_dictionary(kind):
        return max(_of_dictionary(array), len(array))
    if _is_shared(kind):
        raise bad(f"a column of type {str(kind)[:80]}; send it plain")
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        size = sum(decoded_bytes(array.field(index)) for index in range(kind.num_fields))
    elif pa.types.is_map(kind):
        size = decoded_bytes(array.keys) + decoded_bytes(array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        size = decoded_bytes(array.values) + 4 * len(array)
    else:
        size = array.nbytes
    return int(max(size, len(array)))


def check_decoded(batch: pa.RecordBatch, so_far: int, most: int, setting: str) -> int:
    for array in batch.columns:
        so_far += decoded_bytes(array)
        if so_far > most:
            raise _large(f"more than {most} bytes without its dictionaries ({setting})")
    return so_far


def bad(reason: str) -> ProblemError:
    return ProblemError(problem(400, f"Arrow body: {reason}"))


def _large(reason: str) -> ProblemError:
    return ProblemError(problem(413, f"Arrow body: {reason}"))


def _is_shared(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_run_end_encoded(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _of_dictionary(array: pa.DictionaryArray) -> int:
    values = array.dictionary
    if not len(values):
        return 0
    kind = values.type
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_primitive(kind):
        return int(len(array) * max(1, kind.bit_width // 8))
    whole = decoded_bytes(values)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        lengths = pc.take(pc.binary_length(values), array.indices)
        return int((pc.sum(lengths).as_py() or 0) + 4 * len(array))
    return int(len(array) * whole)  # at most: which of them is long is not looked at


def _check_inflated(inflated: int, sent: int, bounds: Inflation) -> None:
    if inflated > bounds.max_bytes:
        raise _large(f"its buffers inflate to more than {bounds.max_bytes} bytes (limits.dataset_bytes)")
    if inflated > _FREE_BYTES and inflated > sent * bounds.max_ratio:
        raise _large(
            f"its buffers inflate more than {bounds.max_ratio} times (limits.ratio): send plain ones"
        )


def _messages(stream: Bytes) -> Iterator[tuple[Bytes, int]]:
    position = 0
    while position < len(stream):
        marker, size = struct.unpack_from("<Ii", stream, position)
        if marker == _CONTINUATION and size == 0:
            return  # what comes behind the end is not read
        if marker != _CONTINUATION or size < 0:
            # Also the framing before Arrow 0.15, which pyarrow would still read.
            raise bad("a message does not begin with its continuation marker")
        start = position + 8
        message = stream[start : start + size]
        yield message, start + size
        root = struct.unpack_from("<I", message)[0]
        length_at = _field(message, root, 3)
        length = struct.unpack_from("<q", message, length_at)[0] if length_at else 0
        if length < 0:
            raise struct.error("a body of negative length")
        position = start + size + length


def _compressed_batch(message: Bytes) -> int | None:
    """Position of a message's batch if its buffers are compressed."""
    root = struct.unpack_from("<I", message)[0]
    type_at, header_at = _field(message, root, 1), _field(message, root, 2)
    header_type = message[type_at] if type_at else 0
    if header_type not in (_RECORD_BATCH, _DICTIONARY_BATCH) or not header_at:
        return None
    header = header_at + struct.unpack_from("<I", message, header_at)[0]
    if header_type == _DICTIONARY_BATCH:
        data_at = _field(message, header, 1)
        header = data_at + struct.unpack_from("<I", message, data_at)[0] if data_at else header
    return header if _field(message, header, 3) else None  # RecordBatch.compression


def _inflated_sizes(stream: Bytes, message: Bytes, header: int, body: int) -> Iterator[int]:
    """Inflated size that each buffer of a compressed batch states."""
    vector_at = _field(message, header, 2)
    if not vector_at:
        return
    vector = vector_at + struct.unpack_from("<I", message, vector_at)[0]
    (count,) = struct.unpack_from("<I", message, vector)
    for number in range(count):
        offset, length = struct.unpack_from("<qq", message, vector + 4 + 16 * number)
        if length <= 0:
            continue
        (size,) = struct.unpack_from("<q", stream, body + offset)
        yield length if size == -1 else max(size, 0)


def _field(message: Bytes, table: int, index: int) -> int:
    """Position of a field of a flatbuffer table, 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", message, table)[0]
    if vtable < 0:
        raise struct.error("vtable outside the message")
    size = struct.unpack_from("<H", message, vtable)[0]
    entry = 4 + 2 * index
    offset = struct.unpack_from("<H", message, vtable + entry)[0] if entry < size else 0
    return table + offset if offset else 0
