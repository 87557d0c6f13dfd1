"""System columns of records and labels: checked, with their defaults."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch import SYSTEM, TIME
from outrider.dataops.journal.journal import Kind
from outrider.dataops.state.stored_texts import NUL, rows_with_nul
from outrider.monitor.stream.event_time import outside, time_fault

from .column_types import Values, convert, nulls
from .rejections import NO_ROWS, RowFaults, Rows
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


def system_columns(part: RequestPart, kind: Kind, received_us: int) -> tuple[dict[str, pa.Array], RowFaults]:
    faults = RowFaults(len(part.indices))
    arrays = _given_columns(part, LABEL_SYSTEM if kind == "labels" else SYSTEM, faults)
    rows = len(part.indices)
    received = pa.repeat(pa.scalar(received_us, TIME), rows)
    given = arrays["ts"]
    arrays["ts"] = _filled_up(given, received)
    if kind == "labels":
        arrays["source"] = _filled_up(arrays["source"], pa.repeat("api", rows))
        _add_nameless(arrays, given, faults)
        return arrays, faults
    arrays["received"] = received
    arrays["weight"] = _filled_up(arrays["weight"], pa.repeat(1.0, rows))
    arrays["partial"] = _filled_up(arrays["partial"], pa.repeat(False, rows))
    arrays["id"] = _with_ids(arrays["id"], faults.is_bad)
    if not part.columns:
        both = enumerate(zip(part.fields["inputs"], part.fields["outputs"], strict=True))
        silent = [row for row, (asked, answered) in both if not (asked or answered)]
        faults.add(silent, "inputs", "a record needs inputs, outputs, or both; got neither")
    return arrays, faults


def _add_nameless(arrays: dict[str, pa.Array], ts: pa.Array, faults: RowFaults) -> None:
    """Refuse labels that name neither a record, nor an entity and a time."""
    if not arrays["id"].null_count:
        return
    no_id, no_entity, no_time = (_nulls(array) for array in (arrays["id"], arrays["entity"], ts))
    reason = "is missing: name the record, or the entity and the time (ts) of the label"
    faults.add(np.flatnonzero(no_id & no_entity), "id", reason)
    reason = "is missing: the label is that of the entity's latest record at this time"
    faults.add(np.flatnonzero(no_id & ~no_entity & no_time), "ts", reason)


def _given_columns(
    part: RequestPart, system: dict[str, pa.DataType], faults: RowFaults
) -> dict[str, pa.Array]:
    rows = len(part.indices)
    arrays: dict[str, pa.Array] = {}
    for name, type_ in system.items():
        values = part.system.get(name)
        if values is None or name == "received" or _is_void(values):
            arrays[name] = nulls(rows, type_)
            continue
        if name in _SHORT and isinstance(values, pa.Array) and pa.types.is_integer(values.type):
            values = values.cast(pa.string())
        array, misfits = convert(values, type_, declared=True)
        array = arrays[name] = nulls(rows, type_) if array is None else array
        faults.add_misfits(name, misfits)
        if isinstance(values, pa.Array):  # what came as JSON has been looked at already
            wrong, reason = _out_of_bounds(name, array)
            faults.add(wrong, name, reason)
        if name in _SHORT:
            faults.add(rows_with_nul(array), name, NUL)
        if name == "ts":
            faults.add(outside(array), name, lambda row, array=array: time_fault(array, row))  # type: ignore[misc]  # bound now
    return arrays


def _is_void(values: Values) -> bool:
    return isinstance(values, list) and values[0] is None and values.count(None) == len(values)


def _with_ids(ids: pa.Array, is_bad: NDArray[np.bool_]) -> pa.Array:
    if not ids.null_count:
        return ids
    missing = np.flatnonzero(_nulls(ids) & ~is_bad).tolist()
    if len(missing) == len(ids):
        return pa.array(uuid7s(len(missing)), pa.string())
    filled = ids.to_pylist()
    for row, new_id in zip(missing, uuid7s(len(missing)), strict=True):
        filled[row] = new_id
    return pa.array(filled, pa.string())


def _out_of_bounds(name: str, array: pa.Array) -> tuple[Rows, str]:
    if name in _SHORT:
        length = pc.utf8_length(array)
        wrong = pc.or_(pc.equal(length, 0), pc.greater(length, 256))
        reason = "1 to 256 characters expected"
    elif name == "weight":
        wrong = pc.or_(pc.less_equal(array, 0.0), pc.greater(array, 1e12))
        reason = "a weight above 0 and up to 1e12 expected"
    else:
        return NO_ROWS, ""
    return np.flatnonzero(pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)), reason


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def _filled_up(array: pa.Array, defaults: pa.Array) -> pa.Array:
    if not array.null_count:
        return array
    return defaults if array.null_count == len(array) else pc.coalesce(array, defaults)
