"""System columns of records and labels: checked, with their defaults."""

import pyarrow as pa
import pyarrow.compute as pc

from outrider.assertions.batch import SYSTEM, TIME
from outrider.dataops.journal.journal import Kind
from outrider.monitor.stream.event_time import outside

from .column_types import convert, nulls
from .request_parts import RequestPart
from .uuid7 import uuid7s

LABEL_SYSTEM: dict[str, pa.DataType] = {
    "id": pa.string(),
    "ts": TIME,
    "source": pa.string(),
    "entity": pa.string(),
    "key": pa.string(),
}
_SHORT = ("id", "version", "entity", "source", "key")
Faults = dict[int, tuple[str, str]]
"""Row to the field that does not fit, and why."""


def system_columns(part: RequestPart, kind: Kind, received_us: int) -> tuple[dict[str, pa.Array], Faults]:
    """System columns with their defaults, and the rows with faults."""
    arrays, faults = _given_columns(part, LABEL_SYSTEM if kind == "labels" else SYSTEM)
    rows = len(part.indices)
    received = pa.repeat(pa.scalar(received_us, TIME), rows)
    given = arrays["ts"]
    arrays["ts"] = _filled_up(given, received)
    if kind == "labels":
        arrays["source"] = _filled_up(arrays["source"], pa.repeat("api", rows))
        return arrays, _nameless(arrays, given) | faults
    arrays["received"] = received
    arrays["weight"] = _filled_up(arrays["weight"], pa.repeat(1.0, rows))
    arrays["partial"] = _filled_up(arrays["partial"], pa.repeat(False, rows))
    arrays["id"] = _with_ids(arrays["id"])
    if not part.columns:
        for row, fields in enumerate(zip(part.fields["inputs"], part.fields["outputs"], strict=True)):
            if not (fields[0] or fields[1]):
                faults.setdefault(row, ("inputs", "a record needs inputs, outputs, or both; got neither"))
    return arrays, faults


def _nameless(arrays: dict[str, pa.Array], ts: pa.Array) -> Faults:
    """Labels that name neither a record, nor an entity and a time."""
    faults: Faults = {}
    for row in _null_rows(arrays["id"]):
        if not arrays["entity"][row].is_valid:
            faults[row] = ("id", "is missing: name the record, or the entity and the time (ts) of the label")
        elif not ts[row].is_valid:
            faults[row] = ("ts", "is missing: the label is that of the entity's latest record at this time")
    return faults


def _given_columns(part: RequestPart, system: dict[str, pa.DataType]) -> tuple[dict[str, pa.Array], Faults]:
    rows = len(part.indices)
    arrays: dict[str, pa.Array] = {}
    faults: Faults = {}
    for name, type_ in system.items():
        values = part.system.get(name)
        if values is None or name == "received":
            arrays[name] = nulls(rows, type_)
            continue
        if name in _SHORT and isinstance(values, pa.Array) and pa.types.is_integer(values.type):
            values = values.cast(pa.string())
        array, bad = convert(values, type_, declared=True)
        array = arrays[name] = nulls(rows, type_) if array is None else array
        if isinstance(values, pa.Array):  # what came as JSON has been looked at already
            bad |= _out_of_bounds(name, arrays[name])
        if name == "ts":
            bad |= outside(array)
        for row, reason in bad.items():
            faults.setdefault(row, (name, reason))
    return arrays, faults


def _with_ids(ids: pa.Array) -> pa.Array:
    missing = _null_rows(ids)
    if not missing:
        return ids
    if len(missing) == len(ids):
        return pa.array(uuid7s(len(missing)), pa.string())
    filled = ids.to_pylist()
    for row, new_id in zip(missing, uuid7s(len(missing)), strict=True):
        filled[row] = new_id
    return pa.array(filled, pa.string())


def _out_of_bounds(name: str, array: pa.Array) -> dict[int, str]:
    if name in _SHORT:
        length = pc.utf8_length(array)
        wrong = pc.or_(pc.equal(length, 0), pc.greater(length, 256))
        reason = "1 to 256 characters expected"
    elif name == "weight":
        wrong = pc.or_(pc.less_equal(array, 0.0), pc.greater(array, 1e12))
        reason = "a weight above 0 and up to 1e12 expected"
    else:
        return {}
    return {row: reason for row, bad in enumerate(wrong.to_pylist()) if bad}


def _null_rows(array: pa.Array) -> list[int]:
    return [row for row, null in enumerate(array.is_null().to_pylist()) if null] if array.null_count else []


def _filled_up(array: pa.Array, defaults: pa.Array) -> pa.Array:
    if not array.null_count:
        return array
    return defaults if array.null_count == len(array) else pc.coalesce(array, defaults)
