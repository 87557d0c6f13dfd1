"""Fast path of V2: binary tensors of the schema's types stay bytes until they are written.

A request is checked for the bytes of such tensors, all finite; nothing else can be wrong, so the journal's
writer makes columns of a whole group, and each tensor is copied once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch.columns import is_tensor
from outrider.dataops.state.stored_texts import may_have_nul
from outrider.monitor.intake.column_types import nulls
from outrider.monitor.intake.pending_blocks import PendingBlock, received_times
from outrider.monitor.intake.request_parts import RequestPart
from outrider.monitor.intake.uuid7 import uuid7s

from .tensors import DTYPES
from .v2 import Head, V2Form, V2Tensor, decode_head, is_attr

_FEW_ROWS = 256
"""Numbered suffixes of so many rows are cached."""
_SLOW_DTYPES = ("FP16", "BF16", "UINT64")
"""Their values have to be looked at, or are none of numpy's."""


@dataclass(frozen=True, slots=True)
class TensorColumn:
    name: str
    kind: pa.DataType
    dtype: np.dtype[Any]
    width: int

    @classmethod
    def of(cls, field: pa.Field, datatype: str, inner: Sequence[int]) -> "TensorColumn | None":
        """Column for tensors of shape ``(rows, *inner)``; None: their values need a second look."""
        dtype, kind = DTYPES.get(datatype), field.type
        if dtype is None or datatype in _SLOW_DTYPES:
            return None
        if inner:
            fits = is_tensor(kind) and tuple(kind.shape) == tuple(inner) and kind.value_type == pa.float32()
            width = int(np.prod(inner))
            return cls(field.name, kind, dtype, width) if fits and datatype == "FP32" else None
        kinds = {"f": (pa.float64(),), "i": (pa.int64(),), "u": (pa.int64(),), "b": (pa.bool_(),)}
        return cls(field.name, kind, dtype, 1) if kind in kinds[dtype.kind] else None

    def fits(self, raw: memoryview, rows: int) -> bool:
        if len(raw) != rows * self.width * self.dtype.itemsize:
            return False
        return self.dtype.kind != "f" or bool(np.isfinite(np.frombuffer(raw, self.dtype)).all())

    def array(self, raws: Sequence[memoryview], rows: int) -> pa.Array:
        data = raws[0] if len(raws) == 1 else b"".join(raws)
        if is_tensor(self.kind):
            flat = pa.Array.from_buffers(pa.float32(), rows * self.width, [None, pa.py_buffer(data)])
            storage = pa.FixedSizeListArray.from_arrays(flat, type=self.kind.storage_type)
            return pa.ExtensionArray.from_storage(self.kind, storage)
        if self.dtype.kind == "b":
            return pa.array(np.frombuffer(data, np.uint8) != 0)
        return pa.array(np.frombuffer(data, self.dtype)).cast(self.kind)


@dataclass(frozen=True, eq=False)
class TensorShape:
    """Tensors of a model's requests while its schema stays; ``columns`` in the order of the request."""

    most_rows: ClassVar[int] = 2**31
    model: str
    schema: pa.Schema
    digest: str
    columns: tuple[TensorColumn, ...]

    @cached_property
    def head(self) -> bytes:
        message: bytes = self.schema.serialize().to_pybytes()
        return message

    def first_id(self, content: "RequestTensors") -> str:
        return content.ids if isinstance(content.ids, str) else content.ids[0]

    def count(self, name: str, content: "RequestTensors") -> int:
        return content.rows if any(column.name == name for column in self.columns) else 0

    def table(self, blocks: Sequence[PendingBlock]) -> pa.RecordBatch:
        requests: list[RequestTensors] = [block.content for block in blocks]
        received = received_times(blocks)
        rows = len(received)
        arrays = {
            "id": _ids(requests),
            "ts": received,
            "received": received,
            "weight": pa.repeat(1.0, rows),
            "partial": pa.repeat(False, rows),
        }
        if any(one.entity is not None for one in requests):
            arrays["entity"] = pa.array(
                [one.entity for one in requests for _ in range(one.rows)], pa.string()
            )
        for at, column in enumerate(self.columns):
            arrays[column.name] = column.array([one.raws[at] for one in requests], rows)
        return pa.RecordBatch.from_arrays(
            [arrays[f.name] if f.name in arrays else nulls(rows, f.type) for f in self.schema],
            schema=self.schema,
        )


@dataclass(frozen=True, slots=True)
class RequestTensors:
    rows: int
    raws: tuple[memoryview, ...]
    ids: str | list[str]
    """Id of the request, which its records are numbered by, or an id for each record."""
    entity: str | None

    def __len__(self) -> int:
        return self.rows


def _ids(requests: Sequence[RequestTensors]) -> pa.Array:
    """Ids of all records, without a Python text for each."""
    texts: list[bytes] = []
    lengths: list[NDArray[np.int32]] = []
    for one in requests:
        if one.rows == 1 or not isinstance(one.ids, str):
            ids = [one.ids] if isinstance(one.ids, str) else one.ids
            encoded = [id_.encode() for id_ in ids]
            texts += encoded
            lengths.append(np.array(list(map(len, encoded)), dtype=np.int32))
        else:
            suffixes, widths = _suffixes(one.rows)
            id_ = one.ids.encode()
            texts.append(id_ + id_.join(suffixes))
            lengths.append(widths + np.int32(len(id_)))
    sizes = lengths[0] if len(lengths) == 1 else np.concatenate(lengths)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.string(), len(sizes), buffers)


def _suffixes(rows: int) -> tuple[list[bytes], NDArray[np.int32]]:
    """``:0``, ``:1``, …, and their lengths."""
    return _few_suffixes(rows) if rows <= _FEW_ROWS else _made_suffixes(rows)


@lru_cache(256)
def _few_suffixes(rows: int) -> tuple[list[bytes], NDArray[np.int32]]:
    return _made_suffixes(rows)


def _made_suffixes(rows: int) -> tuple[list[bytes], NDArray[np.int32]]:
    suffixes = [b":%d" % row for row in range(rows)]
    return suffixes, np.array(list(map(len, suffixes)), dtype=np.int32)


_MOST_SHAPES = 1024
"""The order of tensors comes from strangers: the cache of shapes is bounded."""
_Tensors: TypeAlias = tuple[tuple[str, str, tuple[int, ...]], ...]


class QuickTensors:
    def __init__(self, schema: Callable[[str], tuple[pa.Schema, str]]) -> None:
        self._schema = schema
        self._shapes: dict[tuple[str, str, _Tensors], TensorShape] = {}

    def read(
        self, body: bytes, length: int, *, model: str, form: V2Form, id_of: Callable[[object], str | None],
        entity: str | None, received_us: int,
    ) -> RequestPart | None:  # fmt: skip
        """Records of a request with ``length`` bytes of JSON; None: it needs a second look."""
        if not form.batched or form.tensors:
            return None
        if may_have_nul(body[:length]):  # perhaps in the id
            return None
        try:
            head = decode_head(body[:length])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        tensors, parameters = head.inputs, head.parameters or {}
        if not tensors or head.error is not None or any(map(is_attr, parameters, parameters.values())):
            return None
        if head.model_version or not all(tensor.shape for tensor in tensors):
            return None
        shape = self._shape(model, form, head)
        rows = tensors[0].shape[0]
        if shape is None or not 0 < rows <= form.max_rows:
            return None
        raws = _raws(memoryview(body)[length:], tensors, shape.columns, rows)
        entity = entity or _sequence(parameters)
        if raws is None or (entity is not None and len(entity) > 256):
            return None
        id_ = id_of(head.id)
        content = RequestTensors(rows, tuple(raws), uuid7s(rows) if id_ is None else id_, entity)
        known = PendingBlock("records", model, shape.digest, content, shape, received_us)
        return RequestPart(model, range(rows), {}, known=known)

    def _shape(self, model: str, form: V2Form, head: Head) -> TensorShape | None:
        tensors = tuple((t.name, t.datatype, tuple(t.shape[1:])) for t in head.inputs or ())
        schema, digest = self._schema(model)
        key = (model, digest, tensors)
        shape = self._shapes.get(key) or _make(model, schema, digest, tensors, form)
        if shape is not None:  # else its names are of any length, and none of the schema
            if key not in self._shapes and len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            self._shapes[key] = shape
        return shape


def _raws(
    rest: memoryview, tensors: Sequence[V2Tensor], columns: Sequence[TensorColumn], rows: int
) -> list[memoryview] | None:
    """Bytes of each tensor; None if one does not fit its column, or some are left."""
    raws, at = [], 0
    for tensor, column in zip(tensors, columns, strict=True):
        size = (tensor.parameters or {}).get("binary_data_size")
        if type(size) is not int or size < 0 or tensor.shape[0] != rows:
            return None
        raw = rest[at : at + size]
        if not column.fits(raw, rows):
            return None
        raws.append(raw)
        at += size
    return raws if at == len(rest) else None


def _make(model: str, schema: pa.Schema, digest: str, tensors: _Tensors, form: V2Form) -> TensorShape | None:
    columns = []
    for name, datatype, inner in tensors:
        full = f"inputs.{name}"
        at = schema.get_field_index(full)
        if at < 0:
            return None
        plain = inner in ((), (1,)) and full not in form.shaped
        column = TensorColumn.of(schema.field(at), datatype, () if plain else inner)
        if column is None:
            return None
        columns.append(column)
    names = {column.name for column in columns}
    if len(names) < len(columns) or form.missing(names):
        return None
    return TensorShape(model, schema, digest, tuple(columns))


def _sequence(parameters: Mapping[str, object]) -> str | None:
    sequence = parameters.get("sequence_id")
    return str(sequence) if isinstance(sequence, str | int) and sequence else None
