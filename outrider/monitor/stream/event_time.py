"""Event times within bounds, and bounds for windows.

What lies outside of the years 1970 to 2200 is a broken clock or a sentinel (``0001-01-01``, ``9999-12-31``)
and is refused on every way in: it would put whatever is sorted or cut by time out of joint for ever.

What lies inside but ahead of its receipt is taken as it came. In windows it moves no watermark beyond its
receipt, or it would make everything late that comes behind it; one too far ahead counts as the time of
receipt. How far is too far is written into a block that holds such times (a file's, of another clock, says
nothing), so that a replay sees what was seen, whatever the setting says by then.
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
    """Rows of times (µs, UTC) outside the allowed years."""
    us = times.view(pa.int64()).fill_null(FIRST_US).to_numpy(zero_copy_only=False)
    return np.flatnonzero((us < FIRST_US) | (us >= END_US))


def time_fault(times: pa.Array, row: int) -> str:
    """Fault of a time outside the allowed years."""
    return _reason(times.view(pa.int64())[row].as_py())


def fault_of(us: int) -> str | None:
    """Fault of a time outside the allowed years, else None."""
    return None if FIRST_US <= us < END_US else _reason(us)


def _reason(us: int) -> str:
    return f"a time of the years 1970 to 2200 expected, got {utc_text(us)}"


def are_within(times: pa.Array) -> bool:
    """True where all times (µs, UTC) lie in the allowed years."""
    if not len(times) or times.null_count:
        return not len(outside(times))
    us = _values(times)
    return bool(np.minimum.reduce(us) >= FIRST_US and np.maximum.reduce(us) < END_US)


def are_plainly_within(records: Iterable[Any]) -> bool:
    """True where each ``ts`` is surely in allowed years, any zone."""
    try:
        years = set(map(_year_of_ts, records))
    except AttributeError:  # one without a time
        years = {ts.year for ts in map(_ts, records) if ts is not None}
    return not years or (min(years) > 1970 and max(years) < 2200)


def settled(
    table: pa.RecordBatch, now_us: int, max_ahead_us: int | None, *, since_us: int = FIRST_US
) -> pa.RecordBatch:
    """Rows of a block with times settled at ``now_us``.

    None was received after that, nor before ``since_us``, the border of the last step: their receipt was read
    from the clock as it was before. Where an event time is ahead of its receipt, the block says in its
    metadata how far is believed; without a bound (times of another clock) all are.
    """
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
    """Mask (rows,) of rows ahead by more than their ``bounds_us``."""
    ahead: NDArray[np.bool_] = _us(table, "ts") - _us(table, "received") > bounds_us
    return ahead


def _us(table: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    """Column of times without nulls, shape (rows,), in µs.

    Read where it lies: Arrow gives up the interpreter's lock for a view, which costs a busy intake ten times
    the view.
    """
    return _values(table.column(name))


def _values(times: pa.Array) -> NDArray[np.int64]:
    return np.frombuffer(times.buffers()[1], np.int64, len(times), times.offset * 8)
