"""Fast path of JSON: records of known columns, read straight into their types.

Each model gets generated structs that take just what its schema takes; what they refuse goes to `decode`.
What they take can no longer fail, so records stay rows until the journal's writer makes columns of a whole
group: many small requests pay for one conversion.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat
from operator import attrgetter, sub
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from outrider.assertions.batch import SYSTEM, TIME
from outrider.monitor.stream.event_time import are_plainly_within

from .pending_blocks import PendingBlock, received_times
from .uuid7 import uuid7s

PARTS = ("inputs", "outputs", "attrs")
_TYPES: dict[pa.DataType, Any] = {
    pa.int64(): Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    pa.float64(): float,  # JSON has finite numbers only, and integers are taken
    pa.bool_(): bool,
    pa.string(): str,
}
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,256})"')
_MODEL_WITHIN = 1024
_MAX_COLUMNS = 512
_ID = attrgetter("id")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RARE = ("version", "seq", "weight", "partial")
"""Columns that most senders leave out."""


class RecordShape:
    """Structs of a model's records while its schema stays.

    ValueError if a column needs a second look: its type is not int, float, bool or string, or its name has a
    dot or suits no struct.
    """

    most_rows = 256

    def __init__(
        self,
        envelope: type[msgspec.Struct],
        model: str,
        schema: pa.Schema,
        digest: str,
        needed: tuple[str, ...] = (),
    ) -> None:
        self.model = model
        self.schema = schema
        self.digest = digest
        self.head: bytes = schema.serialize().to_pybytes()
        self._columns = _columns_by_part(schema)
        parts = {part: _part_struct(part, columns) for part, columns in self._columns.items()}
        self._empty = {part: struct() for part, struct in parts.items()}
        fed = [f"f{at}" for at, (name, _) in enumerate(self._columns["inputs"]) if f"inputs.{name}" in needed]
        # Where every column is needed, whatever a record has is one of them.
        self._fed = fed if needed and len(fed) < len(self._columns["inputs"]) else None
        self._named = _decoders(
            _record_struct(envelope, parts, self._empty, Literal[model], msgspec.NODEFAULT)
        )
        self._nameless = _decoders(_record_struct(envelope, parts, self._empty, Literal[model, None], None))

    def decode(self, body: bytes, *, is_lines: bool, default_model: str | None) -> list[Any] | None:
        """Records of a body, or None for a second look."""
        one, lines = self._nameless if default_model == self.model else self._named
        try:
            read = lines(body) if is_lines else one(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        records: list[Any] = read if isinstance(read, list) else [read]
        is_whole = records and self._all_have_values(records) and self._all_are_fed(records)
        if not (is_whole and are_plainly_within(records)):
            return None
        if not all(map(_ID, records)):  # an id of 0 is one
            nameless = [record for record in records if record.id is None]
            for record, fresh in zip(nameless, uuid7s(len(nameless)), strict=True):
                record.id = fresh
        return records

    def table(self, blocks: Sequence[PendingBlock]) -> pa.RecordBatch:
        records = list(chain.from_iterable(block.content for block in blocks))
        received = received_times(blocks)
        arrays = [received if name == "received" else _system(name, records) for name in SYSTEM]
        arrays[1] = _or_received(arrays[1], received)
        for part, columns in self._columns.items():
            if not columns:
                continue
            holders = list(map(attrgetter(part), records))
            if not all(holders):
                holders = [self._empty[part] if holder is None else holder for holder in holders]
            for at, (_, kind) in enumerate(columns):
                arrays.append(pa.array(list(map(attrgetter(f"f{at}"), holders)), kind))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def first_id(self, content: Sequence[Any]) -> str:
        return str(content[0].id)

    def count(self, name: str, content: Sequence[Any]) -> int:
        part, _, field = name.partition(".")
        at = next((at for at, (known, _) in enumerate(self._columns[part]) if known == field), None)
        if at is None:
            return 0
        holders = filter(None, map(attrgetter(part), content))
        return sum(value is not None for value in map(attrgetter(f"f{at}"), holders))

    def _all_have_values(self, records: list[Any]) -> bool:
        """True if every record surely has inputs or outputs."""
        for part in ("inputs", "outputs"):
            holders = list(map(attrgetter(part), records))
            if all(holders) and self._empty[part] not in holders:
                return True
        return False

    def _all_are_fed(self, records: list[Any]) -> bool:
        """True if every record with inputs surely has one of those needed."""
        if self._fed is None:
            return True
        if not self._fed:
            return False
        empty = self._empty["inputs"]  # the default of records that have none
        holders = [h for h in map(attrgetter("inputs"), records) if h is not None and h is not empty]
        return any(None not in map(attrgetter(field), holders) for field in self._fed)


class Shapes:
    """Shapes by model, made again when a schema has changed."""

    def __init__(
        self,
        envelope: type[msgspec.Struct],
        schema: Callable[[str], tuple[pa.Schema, str]],
        needed: Callable[[str], tuple[str, ...]] = lambda _: (),
    ) -> None:
        self._needed = needed
        self._envelope = envelope
        self._schema = schema
        self._shapes: dict[str, tuple[str, RecordShape | None]] = {}

    def of(self, body: bytes, default_model: str | None) -> RecordShape | None:
        """Likely shape of a body's records; None without a fast path."""
        found = _MODEL.search(body, 0, _MODEL_WITHIN)
        model = found[1].decode("utf-8", "replace") if found else default_model
        if not model:
            return None
        try:
            schema, digest = self._schema(model)
        except KeyError:
            return None
        known, shape = self._shapes.get(model, ("", None))
        if known != digest:
            shape = self._make(model, schema, digest)
            self._shapes[model] = (digest, shape)
        return shape

    def _make(self, model: str, schema: pa.Schema, digest: str) -> RecordShape | None:
        try:
            return RecordShape(self._envelope, model, schema, digest, self._needed(model))
        except ValueError:
            return None


def _columns_by_part(schema: pa.Schema) -> dict[str, list[tuple[str, pa.DataType]]]:
    columns: dict[str, list[tuple[str, pa.DataType]]] = {part: [] for part in PARTS}
    for field in schema:
        part, dot, name = field.name.partition(".")
        if dot and (field.type not in _TYPES or "." in name):
            raise ValueError(f"{field.name} ({field.type}) takes a second look")
        if dot:
            columns[part].append((name, field.type))
    if not 0 < sum(map(len, columns.values())) <= _MAX_COLUMNS:
        raise ValueError("no columns, or more than are worth a struct")
    return columns


def _part_struct(part: str, columns: Sequence[tuple[str, pa.DataType]]) -> type[msgspec.Struct]:
    """Struct of ``inputs``, ``outputs`` or ``attrs``; its fields are f0, f1, … in the schema's order."""
    fields = [(f"f{at}", _TYPES[kind] | None, None) for at, (_, kind) in enumerate(columns)]
    names = {f"f{at}": name for at, (name, _) in enumerate(columns)}
    # Without gc: a burst of records must not set off the collector again and again; there are no cycles.
    return msgspec.defstruct(part, fields, rename=names, frozen=True, gc=False, forbid_unknown_fields=True)


def _record_struct(
    envelope: type[msgspec.Struct],
    parts: dict[str, type[msgspec.Struct]],
    empty: dict[str, msgspec.Struct],
    model: Any,
    default_model: Any,
) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(envelope):
        if field.name == "model":
            fields.append(("model", model, default_model))
        elif field.name in parts:
            fields.append((field.name, parts[field.name] | None, empty[field.name]))
        else:
            fields.append((field.name, field.type, field.default))
    return msgspec.defstruct("Record", fields, gc=False, forbid_unknown_fields=True, kw_only=True)


def _decoders(record: type[msgspec.Struct]) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
    """Decoders of an object or an array, and of lines."""
    return msgspec.json.Decoder(list[record] | record).decode, msgspec.json.Decoder(record).decode_lines  # type: ignore[valid-type]  # made at run time


def _system(name: str, records: Sequence[Any]) -> pa.Array:
    values = list(map(attrgetter(name), records))
    if name == "ts" and None not in values:
        return _times(values)
    try:
        if name in _RARE and values.count(values[0]) == len(values):
            if values[0] is None:
                return pa.nulls(len(values), SYSTEM[name])
            return pa.repeat(pa.scalar(values[0], SYSTEM[name]), len(values))
        array = pa.array(values, SYSTEM[name])
    except pa.ArrowTypeError:  # ids may be integers
        array = pa.array([str(value) if isinstance(value, int) else value for value in values], pa.string())
    return array


def _times(values: Sequence[datetime]) -> pa.Array:
    """Their spans convert four times as fast as the times, each of which is asked for its zone."""
    spans = pa.array(list(map(sub, values, repeat(_EPOCH))), pa.duration("us"))
    return pa.Array.from_buffers(TIME, len(spans), spans.buffers())


def _or_received(ts: pa.Array, received: pa.Array) -> pa.Array:
    if not ts.null_count:
        return ts
    return received if ts.null_count == len(ts) else ts.fill_null(received)
