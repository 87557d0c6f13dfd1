"""Fast path for V2 requests with binary tensors of columns that the schema has already."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa

from outrider.dataops.state.stored_texts import may_have_nul
from outrider.monitor.intake.fast_v2 import RequestTensors, TensorColumn, TensorShape
from outrider.monitor.intake.pending_blocks import PendingBlock
from outrider.monitor.intake.request_parts import RequestPart
from outrider.monitor.intake.uuid7 import uuid7s

from .v2 import Head, V2Form, V2Tensor, decode_head, is_attr

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
