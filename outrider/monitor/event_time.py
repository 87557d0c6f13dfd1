"""Event times that are taken: of the years 1970 to 2200, on every way in.

What lies outside is a broken clock or a sentinel (``0001-01-01``, ``9999-12-31``), and would put whatever is
sorted or cut by time out of joint for ever.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.assertions.times import utc_text

FIRST_US = 0
END_US = int(datetime(2201, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_ts, _year = attrgetter("ts"), attrgetter("year")


def outside(times: pa.Array) -> dict[int, str]:
    """Rows of a time column (µs, UTC) that lie outside these years, and what to say of each."""
    us = times.cast(pa.int64()).fill_null(FIRST_US).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero((us < FIRST_US) | (us >= END_US))
    return {row: _reason(int(us[row])) for row in rows.tolist()}


def fault_of(us: int) -> str | None:
    """What to say of a time outside these years; None of one inside."""
    return None if FIRST_US <= us < END_US else _reason(us)


def _reason(us: int) -> str:
    return f"a time of the years 1970 to 2200 expected, got {utc_text(us)}"


def are_within(times: pa.Array) -> bool:
    """Whether all times of a column (µs, UTC) are of these years."""
    span = pc.min_max(times.cast(pa.int64())).as_py()
    return span["min"] is None or (span["min"] >= FIRST_US and span["max"] < END_US)


def are_plainly_within(records: Iterable[Any]) -> bool:
    """Whether the ``ts`` of all records are of these years in any time zone; doubt counts as no."""
    years = set(map(_year, filter(None, map(_ts, records))))
    return not years or (min(years) > 1970 and max(years) < 2200)
