"""Columns of a window: growing schemas, and rows brought to them."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import as_type, is_tensor, mix, null_column, row_hashes, wider_type
from outrider.assertions.batch.schema import canonical_order

from .arrivals import Ints


def merged_schema(old: pa.Schema, new: pa.Schema) -> pa.Schema | None:
    """Columns of both schemas with the wider types. None if a type changed otherwise."""
    kinds = {field.name: field.type for field in old}
    for field in new:
        known = kinds.setdefault(field.name, field.type)
        if vague(known):
            kinds[field.name] = known if pa.types.is_null(field.type) else field.type
        elif field.type != known and not vague(field.type):
            wider = wider_type(known, field.type)
            if wider is None:
                return None
            kinds[field.name] = wider
    return pa.schema([pa.field(name, kinds[name]) for name in canonical_order(kinds)], metadata=new.metadata)


def vague(kind: pa.DataType) -> bool:
    """True for a type without information: nulls only, or empty lists only."""
    return bool(pa.types.is_null(kind) or (pa.types.is_list(kind) and vague(kind.value_type)))


def widened(table: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Table with the columns of ``schema``.

    Columns that the table lacks, or has no type for, are null.
    """
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        index = table.schema.get_field_index(field.name)
        given = None if index < 0 else table.column(index)
        if given is None or wider_type(field.type, given.type) != field.type:
            given = null_column(table.num_rows, field.type)
        columns.append(as_type(given, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def entity_column(batch: Batch, name: str) -> pa.Array:
    """Entity of each record, null without one.

    All null if the batch lacks the column.
    """
    if not batch.has(name):
        return pa.nulls(batch.rows)
    column = batch.arrow(name)
    if is_tensor(column.type) or pa.types.is_nested(column.type):
        raise ValueError(f"by={name!r}: {column.type} cannot name an entity")
    return column


def record_hashes(table: pa.RecordBatch, places: Ints, ts: Ints) -> NDArray[np.uint64]:
    """Hash of id and time of each row."""
    ids = row_hashes(table.column("id").take(pa.array(places)), "id")
    return mix(ids ^ mix(ts.view(np.uint64)))
