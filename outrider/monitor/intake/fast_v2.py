"""Fast path of V2: binary tensors of the schema's types stay bytes until they are written.

A request is checked for the bytes of such tensors, all finite; nothing else can be wrong, so the journal's
writer makes columns of a whole group, and each tensor is copied once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch.columns import is_tensor

from .column_types import nulls
from .pending_blocks import PendingBlock, received_times

_FEW_ROWS = 256
"""Numbered suffixes of so many rows are cached."""
_DTYPES: dict[str, np.dtype[Any]] = {
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "BOOL": np.dtype("?"),
}


@dataclass(frozen=True, slots=True)
class TensorColumn:
    name: str
    kind: pa.DataType
    dtype: np.dtype[Any]
    width: int

    @classmethod
    def of(cls, field: pa.Field, datatype: str, inner: Sequence[int]) -> "TensorColumn | None":
        """Column for tensors of shape ``(rows, *inner)``; None: their values need a second look."""
        dtype, kind = _DTYPES.get(datatype), field.type
        if dtype is None:
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
