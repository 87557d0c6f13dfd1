"""Columns of all batches, their order, and how two schemas differ."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from outrider.errors import SchemaMismatch

TIME = pa.timestamp("us", tz="UTC")
SYSTEM: dict[str, pa.DataType] = {
    "id": pa.string(),
    "ts": TIME,
    "received": TIME,
    "version": pa.string(),
    "entity": pa.string(),
    "seq": pa.int64(),
    "weight": pa.float64(),
    "partial": pa.bool_(),
}
MARKS: dict[str, pa.DataType] = {"by_replica": pa.bool_()}
"""System columns that only some batches have, with their types."""
PARTS = ("inputs", "outputs", "label", "attrs")
REST = "__rest__"
"""Field of each part (``inputs``, ``outputs`` …) that holds its rare fields as one JSON object."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MODEL_KEY = b"outrider.model"
"""Key of the model's name in the Arrow schema's metadata."""


def schema_digest(schema: pa.Schema) -> str:
    """Digest of column names and types; metadata do not matter."""
    text = "\n".join(f"{field.name}:{field.type}" for field in schema)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def canonical_order(names: Iterable[str]) -> list[str]:
    """Full column names in the order that all batches use."""
    given, system = set(names), [*SYSTEM, *MARKS]
    return [
        *(name for name in system if name in given),
        *sorted((name for name in given if name not in system), key=_part_order),
    ]


def is_part(name: str) -> bool:
    """True for full names of fields, such as ``inputs.age``."""
    part, _, field = name.partition(".")
    return part in PARTS and bool(field)


def ordered_table(columns: dict[str, pa.Array], metadata: dict[bytes, bytes] | None) -> pa.RecordBatch:
    """Record batch of columns by full name, in canonical order."""
    names = canonical_order(columns)
    schema = pa.schema([pa.field(name, columns[name].type) for name in names], metadata=metadata)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)


def canonical_table(arrays: dict[str, pa.Array], rows: int, model: str) -> pa.RecordBatch:
    """Record batch with all system columns, parts in order. Tables with equal fields can be concatenated."""
    arrays.setdefault("received", pa.repeat(pa.scalar(EPOCH, TIME), rows))
    defaults = {
        "id": lambda: pa.array(np.arange(rows)).cast(pa.string()),
        "ts": lambda: arrays["received"],
        "weight": lambda: pa.array(np.ones(rows)),
        "partial": lambda: pa.array(np.zeros(rows, dtype=np.bool_)),
    }
    for name, kind in SYSTEM.items():
        if name not in arrays:
            arrays[name] = defaults[name]() if name in defaults else pa.nulls(rows, kind)
    return ordered_table(arrays, {MODEL_KEY: model.encode()})


def _part_order(name: str) -> tuple[int, str]:
    part, _, field = name.partition(".")
    if part not in PARTS or not field:
        raise SchemaMismatch(
            name, f"expected one of {', '.join(SYSTEM)} or {', '.join(p + '.*' for p in PARTS)}"
        )
    return PARTS.index(part), field


def check_same(first: pa.Schema, other: pa.Schema) -> None:
    """Raise SchemaMismatch if the schemas differ; names the first column."""
    if first.equals(other):
        return
    for name in dict.fromkeys([*first.names, *other.names]):
        kinds = [
            str(schema.field(name).type) if name in schema.names else "absent" for schema in (first, other)
        ]
        if kinds[0] != kinds[1]:
            raise SchemaMismatch(
                name, f"{kinds[0]} in the first batch, {kinds[1]} in another; cast one of them"
            )
