"""Payloads and arrays in records: from their JSON form to values of a column."""

import binascii
import json
import math
import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.dataops.payloads.columns import Payload, PayloadForm, faults_of, field_of
from outrider.dataops.payloads.objects import is_digest
from outrider.dataops.payloads.roots import PayloadRules, root_of
from outrider.monitor.http.problem import ProblemError, problem

from .rejections import Misfits

MARKERS = frozenset({"$bytes", "$uri", "$array", "$part"})
"""Keys that make an object a payload or an array."""
_DTYPES = frozenset(
    ["bool", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
)
_ALLOWED = {
    "$bytes": {"media_type"},
    "$uri": {"sha256", "media_type"},
    "$array": {"dtype", "shape"},
    "$part": {"media_type", "dtype", "shape", "text"},
}
Parts = Sequence[memoryview]
_LENGTH = struct.Struct("<Q")


def is_marked(value: Any) -> bool:
    return isinstance(value, dict) and not MARKERS.isdisjoint(value)


def parse_marked(value: Mapping[str, Any], parts: Parts = ()) -> Payload | NDArray[Any] | str:
    """Payload, array or text that an object stands for; ``parts`` are those of a framed body."""
    marker = next(iter(MARKERS & value.keys()))
    unknown = sorted(value.keys() - _ALLOWED[marker] - {marker})
    if unknown:
        known = ", ".join(sorted(_ALLOWED[marker]))
        raise ValueError(f"beside {marker} only {known} expected, got {unknown[0][:256]!r}")
    media_type = value.get("media_type")
    if not (media_type is None or isinstance(media_type, str)):
        raise ValueError(f"media_type: text expected, got {media_type!r:.80}")
    if marker == "$uri":
        return _reference(value, media_type)
    data = _part(value["$part"], parts) if marker == "$part" else _base64(value[marker], marker)
    if "text" in value:
        return _whole_text(data, value)
    if marker == "$array" or "dtype" in value or "shape" in value:
        return _array(data, value)
    return Payload(data, media_type=media_type)


def with_parts(fields: dict[str, Any], parts: Parts, depth: int) -> dict[str, Any]:
    """Fields of one record with every ``$part`` replaced; ValueError names the field that cannot be."""
    made = {}
    for name, value in fields.items():
        try:
            if is_marked(value):
                value = parse_marked(value, parts)
            elif isinstance(value, dict) and depth > 0:
                value = with_parts(value, parts, depth - 1)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        made[name] = value
    return made


def parsed_column(values: Sequence[Any]) -> tuple[list[Any], Misfits]:
    made: list[Any] = []
    bad: dict[int, str] = {}
    for row, value in enumerate(values):
        if is_marked(value):
            try:
                value = parse_marked(value)
            except ValueError as error:
                bad[row] = str(error)
                value = None
        made.append(value)
    return made, Misfits.of(bad, bad.__getitem__)


def with_bytes(values: list[Any]) -> list[Any]:
    """Values with payloads in place of bytes, as tensors of other protocols bring them."""
    if bytes not in set(map(type, values)):
        return values
    return [Payload(value) if type(value) is bytes else value for value in values]


def in_lists(values: Sequence[Any]) -> set[int]:
    """Rows whose list begins with a payload; further elements are not looked at."""
    return {row for row, value in enumerate(values) if type(value) is list and value and is_marked(value[0])}


def refused(column: pa.StructArray, form: PayloadForm | None, rules: PayloadRules) -> dict[int, str]:
    """Rejected rows of a payload column, with reasons, told by the record alone."""
    faults = faults_of(column, max_bytes=rules.max_bytes)
    uris = field_of(column, "uri")
    if uris.null_count == len(uris):
        return faults
    for row, uri in enumerate(uris.to_pylist()):
        if uri is None or row in faults:
            continue
        if form is None:
            faults[row] = (
                "a uri needs a declared column, as binary, text or image(28, 28) in [models.*.columns]"
            )
        elif root_of(rules.roots, uri) is None:
            faults[row] = f"{uri[:256]!r} is in no folder or bucket of intake.payload_roots of the model"
    return faults


def lists_where_known(values: list[Any], known: pa.DataType | None) -> list[Any]:
    """One-dimensional arrays as lists, for a column of lists."""
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if not arrays or any(array.ndim != 1 for array in arrays):
        return values
    uneven = known is None and len({array.size for array in arrays}) > 1
    if not (uneven or (known is not None and pa.types.is_list(known))):
        return values
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]


def _reference(value: Mapping[str, Any], media_type: str | None) -> Payload:
    uri, sha256 = value["$uri"], value.get("sha256")
    if not isinstance(uri, str) or not 0 < len(uri) <= 4096:
        raise ValueError(f"$uri: text of 1 to 4096 characters expected, got {uri!r:.80}")
    if not isinstance(sha256, str) or not is_digest(sha256):
        raise ValueError(f"sha256: 64 lower-case hex digits expected beside $uri, got {sha256!r:.80}")
    return Payload(uri=uri, sha256=sha256, media_type=media_type)


def _whole_text(data: bytes | memoryview, value: Mapping[str, Any]) -> str:
    if value["text"] is not True or len(value) != 2:
        raise ValueError(f"text: true and nothing else expected beside $part, got {value!r:.80}")
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text in UTF-8 expected: byte {error.start} is none") from None


def _base64(text: Any, marker: str) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"{marker}: text in base64 expected, got {text!r:.80}")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{marker}: base64 expected: {error}") from None


def _part(number: Any, parts: Parts) -> memoryview:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(parts):
        there = f"0 to {len(parts) - 1}" if parts else "none (the body is not framed)"
        raise ValueError(f"$part: one of the parts of the body expected, {there}, got {number!r:.80}")
    return parts[number]


def _array(data: bytes | memoryview, value: Mapping[str, Any]) -> NDArray[Any]:
    dtype, shape = value.get("dtype"), value.get("shape")
    if dtype not in _DTYPES:
        raise ValueError(f"dtype: one of {', '.join(sorted(_DTYPES))} expected, got {dtype!r:.80}")
    if (
        not isinstance(shape, list)
        or not 0 < len(shape) <= 16
        or not all(type(side) is int and 0 < side <= 2**31 for side in shape)
    ):
        raise ValueError(f"shape: a list of 1 to 16 sizes > 0 expected, got {shape!r:.80}")
    kind = np.dtype(dtype).newbyteorder("<")
    size = math.prod(shape) * kind.itemsize
    if size != len(data):
        raise ValueError(f"{size} bytes expected for {dtype} of shape {shape!r:.80}, got {len(data)}")
    return np.frombuffer(data, kind).reshape(shape)


# ---- framed bodies: records as JSON, followed by the raw bytes of their payloads ---------------------------


class _FramedHead(msgspec.Struct, forbid_unknown_fields=True):
    sizes: list[int]
    records: msgspec.Raw


_DECODE_HEAD = msgspec.json.Decoder(_FramedHead).decode


def split_frames(body: bytes) -> tuple[bytes, list[memoryview]]:
    """JSON of the records, and the parts as views of the body."""
    if len(body) < _LENGTH.size:
        raise _bad_frames(f"{len(body)} bytes, at least {_LENGTH.size} expected: the length of the JSON")
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    if start > len(body):
        raise _bad_frames(f"JSON of {length} bytes announced, got {len(body) - _LENGTH.size}")
    view = memoryview(body)
    try:
        head = _DECODE_HEAD(view[_LENGTH.size : start])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        head = _read_slowly(bytes(view[_LENGTH.size : start]), error)
    if any(size < 0 for size in head.sizes) or sum(head.sizes) != len(body) - start:
        raise _bad_frames(f"parts of {sum(head.sizes)} bytes announced, got {len(body) - start}")
    ends = list(accumulate(head.sizes, initial=start))
    return bytes(head.records), [view[a:b] for a, b in pairwise(ends)]


def _read_slowly(head: bytes, fault: Exception) -> _FramedHead:
    """Head with bad texts or numbers, which are refused with their records."""
    try:
        found = json.loads(head)
        return _FramedHead(
            msgspec.convert(found["sizes"], list[int]), msgspec.Raw(json.dumps(found["records"]).encode())
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _bad_frames(f'{{"sizes": [...], "records": [...]}} expected: {fault}') from None


def _bad_frames(reason: str) -> ProblemError:
    return ProblemError(problem(400, f"framed body: {reason}"))
