"""Filled templates as input columns, without an object per case."""

from typing import Any

import pyarrow as pa

from .filled import Filled
from .part import TemplateRows
from .patterns import Fixed, Text

_RECORD_PARTS = ("inputs", "id", "label")


def input_columns(filled: Filled) -> dict[str, pa.Array] | None:
    """Arrow columns ``inputs.*`` of texts or dictionaries, None if nested.

    Examples
    --------
    >>> from outrider.behavioral_tests import template
    >>> filled = template({"ask": "Where is {x}?", "answer": "{x}"}, x=["Rome"]).product()
    >>> {name: column.to_pylist() for name, column in input_columns(filled).items()}
    {'inputs.ask': ['Where is Rome?'], 'inputs.answer': ['Rome']}
    """
    columns = [_of_part(part) for part in filled.parts]
    known = [each for each in columns if each is not None]
    if not known or len(known) < len(columns) or len({tuple(each) for each in known}) > 1:
        return None
    joined: dict[str, pa.Array] = {}
    for name in known[0]:
        pieces = [each[name] for each in known]
        if len({piece.type for piece in pieces}) > 1:
            return None
        joined[name] = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    return joined


def _of_part(part: TemplateRows) -> dict[str, pa.Array] | None:
    node = part.template.node
    if isinstance(node, Text):
        return {"inputs.text": part.text(node)}
    if not isinstance(node, dict) or any(name in _RECORD_PARTS for name in node):
        return None
    columns = {f"inputs.{name}": _of_field(part, field) for name, field in node.items()}
    return None if any(column is None for column in columns.values()) else columns


def _of_field(part: TemplateRows, field: Any) -> pa.Array | None:
    if isinstance(field, Text):
        return part.text(field)
    if isinstance(field, Fixed) and isinstance(field.value, str | int | float | bool):
        return pa.repeat(pa.scalar(field.value), part.rows)
    return None
