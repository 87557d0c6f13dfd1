"""Values by which texts elsewhere quote an erased record."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.assertions.batch.schema import PARTS, REST

LEAST_LETTERS = 6
"""Shorter texts are quoted by chance."""
MOST_BYTES = 4096
"""Longer payloads are quoted as a whole by nothing."""
LEAST_DIGITS = 7
"""Of numbers, point and sign included: 1234567 or -0.7312 tell, 0.5 does not."""


def telling_values(table: pa.RecordBatch) -> set[str]:
    """Texts and numbers that hardly come about by chance, as JSON.

    Examples
    --------
    >>> row = {"inputs.note": ["call 555 now"], "inputs.x": [0.123456], "attrs.device": ["web"]}
    >>> sorted(telling_values(pa.record_batch(row)))
    ['0.123456', 'call 555 now']
    >>> payload = [{"bytes": b"a letter to somebody"}, {"bytes": bytes([255, 0])}]
    >>> telling_values(pa.record_batch({"inputs.letter": payload}))
    {'a letter to somebody'}
    """
    found: set[str] = set()
    for name, column in _own(table):
        for leaf in leaves(column):
            for value in leaf.drop_null().unique().to_pylist():
                if name.endswith(f".{REST}"):
                    found.update(_in_json(value))
                else:
                    found.update(_told(value))
    return found


def without_shared(values: set[str], table: pa.RecordBatch) -> set[str]:
    """Values that no record of a table has."""
    if not values or not table.num_rows:
        return values
    texts = pa.array(sorted(values))
    numbers = pa.array([float(value) for value in values if _is_number(value)], pa.float64())
    shared: set[str] = set()
    for _, column in _own(table):
        for leaf in leaves(column):
            if _is_text(leaf.type):
                known = leaf.filter(pc.is_in(leaf, value_set=texts.cast(leaf.type)))
            elif len(numbers):
                known = leaf.filter(pc.is_in(leaf.cast(pa.float64(), safe=False), value_set=numbers))
            else:
                continue
            shared.update(_told_all(known.unique().to_pylist()))
    return values - shared


def leaves(column: pa.Array) -> Iterator[pa.Array]:
    """Flat arrays of the texts and numbers of a column, however nested."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from leaves(column.storage)
    elif pa.types.is_dictionary(kind):
        yield from leaves(column.dictionary_decode())
    elif pa.types.is_struct(kind):
        for part in column.flatten():
            yield from leaves(part)
    elif pa.types.is_map(kind):
        yield from leaves(column.keys)
        yield from leaves(column.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from leaves(column.flatten())
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        yield _texts_of(column)
    elif _is_text(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind):
        yield column


def _texts_of(column: pa.Array) -> pa.Array:
    """Texts among the bytes of a column."""
    short = column.filter(pc.less_equal(pc.binary_length(column), MOST_BYTES))
    try:
        return short.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = (value.decode(errors="replace") for value in short.drop_null().unique().to_pylist())
        return pa.array([text for text in decoded if "\N{REPLACEMENT CHARACTER}" not in text], pa.string())


def _own(table: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    for name in table.schema.names:
        if name.partition(".")[0] in PARTS:
            yield name, table.column(name)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _in_json(text: str) -> Iterator[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    yield from _told_all(_scalars(found))


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _scalars(one)
    elif isinstance(value, list):
        for one in value:
            yield from _scalars(one)
    else:
        yield value


def _told_all(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        yield from _told(value)


def _told(value: Any) -> Iterator[str]:
    """Text of a value where it tells something; a float in both precisions that JSON may show."""
    if isinstance(value, str):
        if len(value) >= LEAST_LETTERS:
            yield value
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        shown = {json.dumps(value)}
        if isinstance(value, float):
            shown.add(json.dumps(float(str(np.float32(value)))))
        yield from (text for text in shown if len(text) >= LEAST_DIGITS and text.strip("-0."))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
