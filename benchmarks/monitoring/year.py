"""A year of stored profiles: disk, and what a restart reads of them.

Traffic of 20 columns and two slices, 20,000 records a minute. Real profiles of minutes are written and joined
by the worker's own roll-up, day after day of a year; two minutes stand for the sixty of an hour, and the
last three hours have all of theirs. ``disk`` is what tables and indices take in the file, per slice.
``restart`` is what the queries of a restart read through a new connection without a cache.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from benchmarks.figure import Figure
from benchmarks.monitoring.profile import traffic
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.dataops.ledger.minutes import DAY_US, HOUR_US, MINUTE_US
from outrider.dataops.ledger.profiles import LayoutRow, ProfileRow
from outrider.dataops.ledger.stored_profiles import (
    KeptProfiles,
    insert_layouts,
    insert_profiles,
    last_profiled,
    newest_layout,
    roll_up,
    slices_of_slot,
)
from outrider.dataops.state.database import write
from tests.databases import migrated

MINUTE_ROWS, REFERENCE, DAYS, KINDS, PER_HOUR = 20_000, 20_000, 365, 12, 2
SLICES = ("north", "south")
START_US = 1_790_000_000_000_000 - 1_790_000_000_000_000 % DAY_US
DATA = f"{DAYS} days, 20 columns, {len(SLICES)} slices, {MINUTE_ROWS:,} records a minute"


def payloads(layout: ProfileLayout) -> list[bytes]:
    """Stored profiles of different minutes."""
    return [Profile.of(traffic(MINUTE_ROWS, seed=10 + one), layout).to_bytes() for one in range(KINDS)]


def minute(layout: ProfileLayout, kinds: Sequence[bytes], start_us: int, number: int) -> list[ProfileRow]:
    """Rows of one minute, a profile for each slice."""
    return [
        ProfileRow(
            60, start_us, "champion", "1", one, number, layout.digest, MINUTE_ROWS, kinds[number % KINDS]
        )
        for one in SLICES
    ]


def fill(engine: Engine, layout: ProfileLayout, kinds: Sequence[bytes]) -> None:
    """Write a year, rolled up at the end of each day as the worker does every hour."""
    number = 0
    with write(engine) as connection:
        insert_layouts(connection, "m", [LayoutRow(layout.digest, START_US, "traffic", 1, layout.to_json())])
    for day in range(DAYS):
        begin = START_US + day * DAY_US
        starts = [begin + at * HOUR_US // PER_HOUR for at in range(24 * PER_HOUR)]
        if day == DAYS - 1:
            last = begin + DAY_US - 3 * HOUR_US
            starts = [one for one in starts if one < last] + list(range(last, begin + DAY_US, MINUTE_US))
        with write(engine) as connection:
            for start in starts:
                number += 1
                insert_profiles(connection, "m", minute(layout, kinds, start, number))
            roll_up(connection, "m", now_us=begin + DAY_US, kept=KeptProfiles())


def bytes_read(path: Path, work: Callable[[Connection], object]) -> int:
    """Bytes that this process reads for a query on a new connection."""
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("PRAGMA mmap_size = 0"))
        connection.execute(text("SELECT count(*) FROM sqlite_master")).all()  # the schema
        before = _read()
        work(connection)
        return _read() - before


def _read() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def restart(connection: Connection) -> None:
    """Read what a worker does of the profiles of a slot as it starts."""
    newest_layout(connection, "m")
    slices_of_slot(connection, "m", "champion")
    last_profiled(connection, "m", "champion")


def main() -> None:
    """Fill a database and show both figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        engine = migrated(path)
        layout = ProfileLayout.fit(traffic(REFERENCE, seed=1))
        fill(engine, layout, payloads(layout))
        with engine.connect() as connection:
            query = "SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%profile%'"
            stored = int(connection.exec_driver_sql(query).scalar_one()) / len(SLICES)
            spans = "SELECT span_s, count(*), avg(length(payload)) FROM profile GROUP BY 1"
            windows = connection.exec_driver_sql(spans).all()
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
        engine.dispose()
        read = float(np.median([bytes_read(path, restart) for _ in range(5)]))
    told = ", ".join(f"{n // len(SLICES)} of {span} s ({size / 1000:.1f} kB)" for span, n, size in windows)
    Figure(
        "monitoring.year.disk",
        stored / 1e6,
        "MB per slice",
        "300",
        300e6 / stored,
        1.0,
        data=f"{DATA}: {told}",
    ).show()
    Figure(
        "monitoring.year.restart", read / 1e3, "kB read", "1000", 1e6 / max(read, 1.0), 1.0, data=DATA
    ).show()


if __name__ == "__main__":
    main()
