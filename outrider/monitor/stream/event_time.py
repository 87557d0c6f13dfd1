"""Event times within bounds, and bounds for windows.

Times outside the years 1970 to 2200 are a broken clock or a sentinel (``9999-12-31``) and are refused at
every entry. Times ahead of receipt are kept, but move no watermark beyond receipt; those too far ahead count
as receipt. The bound is written into the block, so that a replay sees what was seen.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.times import utc_text

FIRST_US = 0
END_US = int(datetime(2201, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_AHEAD = b"outrider.max_ahead_us"
_ts, _year_of_ts = attrgetter("ts"), attrgetter("ts.year")


def outside(times: pa.Array) -> NDArray[np.int64]:
    us = times.view(pa.int64()).fill_null(FIRST_US).to_numpy(zero_copy_only=False)
    return np.flatnonzero((us < FIRST_US) | (us >= END_US))


def time_fault(times: pa.Array, row: int) -> str:
    return _reason(times.view(pa.int64())[row].as_py())


def fault_of(us: int) -> str | None:
    return None if FIRST_US <= us < END_US else _reason(us)


def _reason(us: int) -> str:
    return f"a time of the years 1970 to 2200 expected, got {utc_text(us)}"


def are_within(times: pa.Array) -> bool:
    if not len(times) or times.null_count:
        return not len(outside(times))
    us = _values(times)
    return bool(np.minimum.reduce(us) >= FIRST_US and np.maximum.reduce(us) < END_US)


def are_plainly_within(records: Iterable[Any]) -> bool:
    """True where each ``ts`` is surely in the allowed years, in any zone."""
    try:
        years = set(map(_year_of_ts, records))
    except AttributeError:  # one without a time
        years = {ts.year for ts in map(_ts, records) if ts is not None}
    return not years or (min(years) > 1970 and max(years) < 2200)


def settled(
    table: pa.RecordBatch, now_us: int, max_ahead_us: int | None, *, since_us: int = FIRST_US
) -> pa.RecordBatch:
    """Rows of a block with receipts at most ``now_us`` and at least ``since_us``, the last step of the
    clock. Where an event time is ahead of receipt, the block's metadata says how far is believed;
    without a bound (times of another clock) all are."""
    received, ts = _us(table, "received"), _us(table, "ts")
    if not len(received):
        return table
    if np.maximum.reduce(received) > now_us or np.minimum.reduce(received) < since_us:
        is_receipt = ts == received
        received = np.clip(received, since_us, max(now_us, since_us))
        ts = np.where(is_receipt, received, ts)
        for name, times in (("received", received), ("ts", ts)):
            at = table.schema.get_field_index(name)
            table = table.set_column(
                at, table.schema.field(at), pa.array(times).cast(table.schema.field(at).type)
            )
    if max_ahead_us is not None and np.maximum.reduce(ts - received) > 0:
        said = {_AHEAD: str(max_ahead_us).encode()}
        table = table.replace_schema_metadata((table.schema.metadata or {}) | said)
    return table


def max_ahead_us(table: pa.RecordBatch) -> int | None:
    """Bound (µs) on event time ahead of receipt, else None."""
    said = (table.schema.metadata or {}).get(_AHEAD)
    return None if said is None else int(said)


def are_ahead(table: pa.RecordBatch, bounds_us: NDArray[np.int64]) -> NDArray[np.bool_]:
    ahead: NDArray[np.bool_] = _us(table, "ts") - _us(table, "received") > bounds_us
    return ahead


def _us(table: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    """Column of times without nulls, shape (rows,), in µs, read in place: Arrow releases the
    interpreter's lock for a view, which costs a busy intake ten times the view."""
    return _values(table.column(name))


def _values(times: pa.Array) -> NDArray[np.int64]:
    return np.frombuffer(times.buffers()[1], np.int64, len(times), times.offset * 8)
