"""Payload columns: encoded images, audio and long texts, as bytes or references.

What came is stored unchanged; the declared :class:`PayloadForm` is what a model sees.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .objects import is_digest

PAYLOAD = pa.struct(
    [("bytes", pa.binary()), ("uri", pa.string()), ("sha256", pa.string()), ("media_type", pa.string())]
)
"""Type of a payload column: ``bytes``, or ``uri`` and ``sha256`` of bytes that lie elsewhere."""
FIELDS = tuple(field.name for field in PAYLOAD)
NULLABLE = "?"
"""Suffix of a declared type whose column training rows may lack."""
MEDIA_TYPE = b"outrider.media_type"
"""Metadata key of an Arrow field: type of its bytes."""
_IMAGE = re.compile(
    r"image\(\s*(?P<height>\d+)\s*,\s*(?P<width>\d+)\s*(?:,\s*(?P<channels>[134])\s*)?"
    r"(?:,\s*0\.\.(?P<top>1|255)\s*)?\)"
)
_MOST_SIDE = 8192


@dataclass(frozen=True, slots=True)
class PayloadForm:
    kind: Literal["image", "text", "binary"]
    """``image``: a tensor; ``text``: a text, of UTF-8; ``binary``: the bytes."""
    shape: tuple[int, ...] = ()
    """Of an image's tensor: (height, width) for grey, else (height, width, channels)."""
    top: int = 1
    """Value of full brightness, 1 or 255."""

    @property
    def bytes_per_row(self) -> int:
        """Size of a decoded image; 0 for other kinds, unknown before."""
        return 4 * math.prod(self.shape) if self.shape else 0


BINARY = PayloadForm("binary")


@dataclass(frozen=True, slots=True, repr=False)
class Payload:
    data: bytes | memoryview | None = None
    uri: str | None = None
    sha256: str | None = None
    media_type: str | None = None

    def __repr__(self) -> str:
        what = self.uri if self.data is None else f"of {len(self.data)} bytes"
        return f"payload {what}"


def parse_form(text: str) -> PayloadForm | None:
    """None for types that are no payloads."""
    text = text.removesuffix(NULLABLE)
    if text == "binary":
        return BINARY
    if text == "text":
        return PayloadForm("text")
    if not text.startswith("image"):
        return None
    match = _IMAGE.fullmatch(text)
    sides = (int(match["height"]), int(match["width"])) if match else (0, 0)
    if match is None or not all(0 < side <= _MOST_SIDE for side in sides):
        raise ValueError(
            "image(28, 28), image(224, 224, 3) or image(224, 224, 3, 0..255) expected (height, width, 1, 3 "
            f"or 4 channels, sides up to {_MOST_SIDE}), got {text!r}"
        )
    channels = (int(match["channels"]),) if match["channels"] else ()
    return PayloadForm("image", (*sides, *channels), int(match["top"] or 1))


def is_payload(kind: pa.DataType) -> bool:
    return bool(kind.equals(PAYLOAD))


def payload_array(values: Sequence[Payload | None]) -> pa.StructArray:
    columns = [
        pa.array([None if v is None else v.data for v in values], pa.binary()),
        pa.array([None if v is None else v.uri for v in values], pa.string()),
        pa.array([None if v is None else v.sha256 for v in values], pa.string()),
        pa.array([None if v is None else v.media_type for v in values], pa.string()),
    ]
    absent = [value is None for value in values]
    mask = pa.array(absent) if any(absent) else None
    return pa.StructArray.from_arrays(columns, fields=list(PAYLOAD), mask=mask)


def from_arrow(array: pa.Array, media_type: str | None = None) -> pa.StructArray | None:
    """Bytes, or structs with ``bytes`` or ``uri``; None for others."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return None
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return bytes_array(array.cast(pa.binary()), media_type)
    if not pa.types.is_struct(kind):
        return None
    names = [field.name for field in kind]
    if not set(names) <= set(FIELDS) or not {"bytes", "uri"} & set(names):
        return None
    given = dict(zip(names, array.flatten(), strict=True))
    columns = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(len(array), field.type)
        for field in PAYLOAD
    ]
    if media_type is not None:
        columns[3] = pc.fill_null(columns[3], media_type)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(PAYLOAD), mask=mask)


def bytes_array(data: pa.BinaryArray, media_type: str | None = None) -> pa.StructArray:
    """Null where ``data`` is."""
    rows = len(data)
    kinds = pa.nulls(rows, pa.string()) if media_type is None else pa.repeat(pa.scalar(media_type), rows)
    columns = [data, pa.nulls(rows, pa.string()), pa.nulls(rows, pa.string()), kinds]
    mask = data.is_null() if data.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(PAYLOAD), mask=mask)


def text_array(values: Any) -> Any:
    if isinstance(values, pa.Array):
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            return bytes_array(values.cast(pa.string()).cast(pa.binary()), "text/plain")
        return values
    return [
        Payload(value.encode("utf-8", "surrogatepass"), media_type="text/plain")
        if isinstance(value, str)
        else value
        for value in values
    ]


def field_of(column: pa.StructArray, name: str) -> pa.Array:
    """Null where the payload is."""
    return column.flatten()[FIELDS.index(name)]


def faults_of(column: pa.StructArray, *, max_bytes: int) -> dict[int, str]:
    """Reasons by row: neither bytes nor reference, or too many bytes."""
    data, uri, sha256, media_type = column.flatten()
    faults: dict[int, str] = {}
    there = column.is_valid().to_numpy(zero_copy_only=False)
    has_data = data.is_valid().to_numpy(zero_copy_only=False)
    has_uri = uri.is_valid().to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(there & (has_data == has_uri)).tolist():
        faults[row] = "bytes or a uri expected, and only one of them"
    sizes = pc.fill_null(pc.binary_length(data), 0).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(sizes > max_bytes).tolist():
        faults[row] = f"{sizes[row]} bytes, at most {max_bytes} expected (intake.payload_bytes of the model)"
    for row in np.flatnonzero(there & has_uri).tolist():
        if not is_digest(sha256[row].as_py() or ""):
            faults[row] = f"a uri needs sha256, 64 lower-case hex digits, got {sha256[row].as_py()!r:.80}"
    lengths = pc.fill_null(pc.utf8_length(media_type), 0).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(lengths > 256).tolist():
        faults[row] = "a media_type of at most 256 characters expected"
    return faults


def forms_of(columns: Mapping[str, str]) -> dict[str, PayloadForm]:
    found = {}
    for name, text in columns.items():
        try:
            form = parse_form(text)
        except ValueError:
            continue  # told where the types are parsed
        if form is not None:
            found[name] = form
    return found
