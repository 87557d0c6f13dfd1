"""Open Inference Protocol (V2) over HTTP: JSON and binary tensors become columns.

A tensor of shape ``[n, …]`` is a column of ``n`` records. ``[n]`` and ``[n, 1]`` hold plain values, other
shapes tensors; BYTES are texts, or bytes where they are not UTF-8, and a list per record for ``[n, k]``.
"""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from outrider.assertions.batch.columns import is_tensor
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.intake.column_types import Values
from outrider.monitor.intake.decode import parse_json
from outrider.monitor.intake.request_parts import RequestPart

from .ids import check_short, row_ids
from .tensors import DTYPES, binary_column, json_column
from .unsupported import shared_memory

HEADER = "inference-header-content-length"
"""Length of the JSON in front of binary tensors."""
Message = Literal["request", "response"]
_PREFIX: dict[Message, str] = {"request": "inputs", "response": "outputs"}
_RESERVED = {
    "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers",
    "binary_data_output", "content_type",
}  # fmt: skip
_MAX_DIMENSIONS = 16


class V2Tensor(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: Any = None
    parameters: dict[str, Any] | None = None


class Head(msgspec.Struct):
    id: str | int | None = None
    model_name: str | None = None
    model_version: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: list[V2Tensor] | None = None
    outputs: list[Any] | None = None
    error: str | None = None


decode_head = msgspec.json.Decoder(Head).decode


@dataclass(frozen=True, slots=True)
class V2Form:
    """Options of reading one model's tensors."""

    batched: bool = True
    """Whether the first size of every tensor is the number of records; else a message is one record."""
    tensors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names for a tensor: one renames it, several are its columns along the last axis."""
    output_tensors: Mapping[str, tuple[str, ...]] | None = None
    """None: the names of requests."""
    needed: tuple[str, ...] = ()
    """Full names of the inputs of which a request needs every one."""
    typed: tuple[str, ...] = ()
    """Full names of the inputs of which a request needs one at least."""
    shaped: Collection[str] = frozenset()
    """Full names of columns that stay vectors or lists in shape ``[n, 1]``."""
    max_rows: int = 100_000
    max_depth: int = 16

    def read(self, body: bytes, message: Message, *, header_length: int | None = None) -> "V2Message":
        """Columns of a body; binary tensors after the JSON are found without the header, too."""
        head, end = _head(body, header_length, self.max_depth)
        if head.error is not None:
            raise ProblemError(problem(422, f"an error instead of tensors: {head.error[:256]}"))
        tensors = _tensors(head, message)
        rows = self._rows(tensors)
        columns = self._columns(tensors, _PREFIX[message], rows, memoryview(body)[end:])
        if message == "request" and (missing := self.missing(columns)):
            raise ProblemError(problem(422, _lacking(missing, tensors)))
        parameters = head.parameters or {}
        sequence = parameters.get("sequence_id")
        return V2Message(
            rows=rows,
            columns=columns,
            id=head.id,
            model=head.model_name,
            version=head.model_version or None,
            entity=str(sequence) if isinstance(sequence, str | int) and sequence else None,
            attrs={name: value for name, value in parameters.items() if is_attr(name, value)},
        )

    def missing(self, columns: Collection[str]) -> list[str]:
        """Inputs for lack of which a request with these columns is refused."""
        missing = [name for name in self.needed if name not in columns]
        return missing or ([] if any(name in columns for name in self.typed) else list(self.typed))

    def raw(self, body: bytes, name: str, kind: pa.DataType | None) -> "V2Message":
        """Message of a raw request: the body is the only tensor (``Inference-Header-Content-Length: 0``)."""
        if kind is not None and is_tensor(kind):
            size = 4 * math.prod(kind.shape)
            if not body or len(body) % size:
                raise _bad(f"raw tensor {name}: a multiple of {size} bytes expected, got {len(body)}")
            shape = [len(body) // size, *kind.shape]
            tensor = V2Tensor(name, shape, "FP32", None, {"binary_data_size": len(body)})
            raw = memoryview(body)
        else:
            raw = memoryview(len(body).to_bytes(4, "little") + body)
            tensor = V2Tensor(name, [1], "BYTES", None, {"binary_data_size": len(raw)})
        rows = self._rows([tensor])
        return V2Message(rows=rows, columns=self._columns([tensor], "inputs", rows, raw))

    def _rows(self, tensors: list[V2Tensor]) -> int:
        for tensor in tensors:
            _check(tensor)
        if not self.batched:
            return 1
        rows = {tensor.shape[0] if tensor.shape else 1 for tensor in tensors}
        if len(rows) > 1:
            shapes = ", ".join(f"{tensor.name} {tensor.shape}" for tensor in tensors[:20])
            raise ProblemError(
                problem(
                    422,
                    "the first size of every tensor must be the number of records, got "
                    f"{shapes}; for a model without batches set batched = false in its [intake]",
                )
            )
        count = rows.pop()
        if count > self.max_rows:
            raise ProblemError(
                problem(413, f"{count} records, at most {self.max_rows} in one request (limits.records)")
            )
        return count

    def _columns(
        self, tensors: list[V2Tensor], prefix: str, rows: int, rest: memoryview
    ) -> dict[str, Values]:
        columns: dict[str, Values] = {}
        at = 0
        for tensor in tensors:
            if "shared_memory_region" in (tensor.parameters or {}):
                raise shared_memory(tensor.name)
            size = (tensor.parameters or {}).get("binary_data_size")
            if size is not None and not (type(size) is int and 0 <= size <= len(rest) - at):
                raise _bad(f"tensor {tensor.name}: {size!r} bytes of binary data, {len(rest) - at} are there")
            raw = None if size is None else rest[at : at + size]
            at += size or 0
            try:
                found = self._column(tensor, prefix, rows, raw)
            except ValueError as error:
                raise _bad(f"tensor {tensor.name}: {error}") from None
            for name, values in found.items():
                if name in columns:
                    raise _bad(f"two tensors become {name}")
                columns[name] = values
        if at < len(rest):
            raise _bad(f"{len(rest) - at} bytes behind the last tensor belong to none")
        return columns

    def _column(self, tensor: V2Tensor, prefix: str, rows: int, raw: memoryview | None) -> dict[str, Values]:
        shape = tensor.shape if self.batched and tensor.shape else [rows, *tensor.shape]
        is_output = prefix == "outputs" and self.output_tensors is not None
        given = self.output_tensors or {} if is_output else self.tensors
        names = given.get(tensor.name, (tensor.name,))
        full = [f"{prefix}.{name}" for name in names]
        keep = len(names) > 1 or full[0] in self.shaped
        if raw is not None:
            values = binary_column(raw, shape, tensor.datatype, keep=keep)
        else:
            is_base64 = (tensor.parameters or {}).get("content_type") == "base64"
            values = json_column(tensor.data, shape, tensor.datatype, keep=keep, base64_text=is_base64)
        return {full[0]: values} if len(names) == 1 else _split(values, shape, full)


@dataclass(frozen=True, slots=True)
class V2Message:
    rows: int
    columns: dict[str, Values]
    id: str | int | None = None
    model: str | None = None
    version: str | None = None
    entity: str | None = None
    attrs: dict[str, Any] = field(default_factory=dict)

    def part(
        self,
        model: str,
        *,
        id_: str | None = None,
        version: str | None = None,
        entity: str | None = None,
        ts: object = None,
        first: int = 0,
    ) -> RequestPart:
        """Records of a model; values given here count before those of the body."""
        system: dict[str, Values] = {}
        for name, value in (("version", version or self.version), ("entity", entity or self.entity)):
            check_short(name, value)
            if value is not None:
                system[name] = [value] * self.rows
        if ts is not None:
            system["ts"] = [ts] * self.rows
        if (ids := row_ids(id_, self.rows)) is not None:
            system["id"] = ids
        attrs = {f"attrs.{name}": [value] * self.rows for name, value in self.attrs.items()}
        indices = list(range(first, first + self.rows))
        return RequestPart(model=model, indices=indices, system=system, columns=self.columns | attrs)


def header_length(headers: Mapping[str, str]) -> int | None:
    """Length of the JSON in the header; None without the header."""
    text = headers.get(HEADER)
    if text is None:
        return None
    if not (text.isascii() and text.strip().isdigit()):
        raise _bad(f"Inference-Header-Content-Length: a number of bytes expected, got {text[:64]!r}")
    return int(text)


def _head(body: bytes, length: int | None, max_depth: int) -> tuple[Head, int]:
    if length is not None and length > len(body):
        raise _bad(f"Inference-Header-Content-Length is {length}, the body has {len(body)} bytes")
    end = len(body) if length is None else length
    try:
        return decode_head(body[:end]), end
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # numbers that are none, binary tensors without the header, or a fault to be named
    if length is None:
        end = _end_of_json(body)
    parsed = parse_json(body[:end], max_depth)
    try:
        return msgspec.convert(parsed, Head), end
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise _bad(str(error)) from None


def _end_of_json(body: bytes) -> int:
    """End of the JSON object at the beginning; all of the body for other bodies."""
    try:
        # Every byte is a character: quotes, braces and backslashes are the same in UTF-8.
        return json.JSONDecoder().raw_decode(body.decode("latin-1"))[1]
    except (ValueError, RecursionError):
        return len(body)


def _tensors(head: Head, message: Message) -> list[V2Tensor]:
    name = _PREFIX[message]
    if message == "request":
        tensors = head.inputs
    else:
        try:
            tensors = None if head.outputs is None else msgspec.convert(head.outputs, list[V2Tensor])
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise _bad(f"outputs: {error}") from None
    if not tensors:
        raise _bad(f"{name}: a list of tensors expected, with name, shape, datatype and data")
    return tensors


def _check(tensor: V2Tensor) -> None:
    if tensor.datatype not in DTYPES and tensor.datatype != "BYTES":
        known = ", ".join([*DTYPES, "BYTES"])
        raise _bad(f"tensor {tensor.name}: datatype {tensor.datatype[:64]!r} is none of {known}")
    if len(tensor.shape) > _MAX_DIMENSIONS or any(size < 1 for size in tensor.shape):
        raise _bad(
            f"tensor {tensor.name}: a shape of up to {_MAX_DIMENSIONS} sizes >= 1 expected, "
            f"got {str(tensor.shape)[:128]}"
        )


def _split(values: Values, shape: list[int], names: list[str]) -> dict[str, Values]:
    """Columns along the last axis of a tensor of shape (rows, columns)."""
    if len(shape) != 2 or shape[1] != len(names):
        raise ValueError(
            f"{len(names)} names are given for it, so shape [n, {len(names)}] expected, got {shape}"
        )
    if isinstance(values, list):
        return {name: [row[at] for row in values] for at, name in enumerate(names)}
    numbers = values.to_numpy_ndarray()
    return {name: pa.array(np.ascontiguousarray(numbers[:, at])) for at, name in enumerate(names)}


def is_attr(name: str, value: object) -> bool:
    """Test for a plain parameter that does not steer the server: an attribute of the records."""
    return name not in _RESERVED and not name.startswith("triton_") and isinstance(value, str | int | float)


def _lacking(missing: list[str], tensors: list[V2Tensor]) -> str:
    came = ", ".join(tensor.name[:64] for tensor in tensors[:20])
    return (
        f"V2 body: declared inputs are missing: {', '.join(missing[:20])}; got tensors {came}; name those "
        "that are called otherwise in [models.NAME.intake.tensors.inputs], or take such requests with "
        'missing_inputs = "flag" in [models.NAME.intake]'
    )


def _bad(reason: str) -> ProblemError:
    return ProblemError(problem(400, f"V2 body: {reason}"))
