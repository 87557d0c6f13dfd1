"""What a durable acknowledgement costs beyond the disk: the journal's writer, SQLite alone, a bare file.

``python -m benchmarks.live_path.durable [FOLDER]``: the same payloads in the same groups, in turn, on the
disk of FOLDER (default: of this project). The writer's time holds what it makes of columns and its checksums;
the floors write bytes that are ready. SQLite alone has the journal's pages, log and ``synchronous=FULL``.
"""

import asyncio
import itertools
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import Figure
from outrider.dataops.journal.journal import PAGE_BYTES, SqliteJournal
from outrider.monitor.intake.decode import Decoder, Form
from outrider.monitor.intake.group_commit import Committed, GroupCommit, merge
from outrider.monitor.intake.pending_blocks import PendingBlock
from outrider.monitor.intake.schema_book import SchemaBook

from .intake import arrow, records

ROUNDS = 9
COMMITS = 12


def block(rows: int) -> PendingBlock:
    """A block as the intake hands it to the writer: one record is a row still, many are columns."""
    decoder = Decoder(SchemaBook({"churn": {}}))
    form: Form = "json" if rows == 1 else "arrow"
    body = json.dumps(records(1)[0]).encode() if rows == 1 else arrow(rows)
    for _ in range(2):
        known = decoder.read_known(body, form=form, model=None, received_us=1)
        parts, rejected = (known, None) if known else decoder.read(body, kind="records", form=form)
        found = decoder.build(parts, rejected, kind="records", received_us=1)
    [made] = found.blocks
    return made


@contextmanager
def writer(folder: Path, made: PendingBlock, group: int) -> Iterator[Callable[[], None]]:
    """Commits of the journal's writer, each of ``group`` requests that wait together."""
    committed: list[Committed] = []
    with SqliteJournal(folder / "journal.db") as journal:
        commits = GroupCommit(journal, queue_bytes=1 << 40, on_commit=committed.append, tick_s=3600)
        commits.start()

        async def ask() -> None:
            with commits._wake:  # nobody is taken before all have come: groups are equal
                waiting = [asyncio.create_task(commits.submit([made], 1)) for _ in range(group)]
                await asyncio.sleep(0)
            await asyncio.gather(*waiting)

        async def many() -> None:
            for _ in range(COMMITS):
                await ask()

        def run() -> None:
            committed.clear()
            asyncio.run(many())
            assert len(committed) == COMMITS

        yield run
        commits.close()


def sqlite(folder: Path, payloads: list[bytes]) -> Callable[[], None]:
    """The same payloads in bare commits."""
    database = sqlite3.connect(folder / "bare.db", isolation_level=None)
    for pragma in (f"page_size = {PAGE_BYTES}", "journal_mode = WAL", "synchronous = FULL"):
        database.execute(f"PRAGMA {pragma}")
    database.execute(f"PRAGMA wal_autocheckpoint = {16_777_216 // PAGE_BYTES}")
    database.execute("CREATE TABLE block (seq INTEGER PRIMARY KEY AUTOINCREMENT, payload BLOB NOT NULL)")

    def run() -> None:
        for _ in range(COMMITS):
            database.execute("BEGIN IMMEDIATE")
            for payload in payloads:
                database.execute("INSERT INTO block (payload) VALUES (?)", (payload,))
            database.execute("COMMIT")

    return run


def append(folder: Path, payloads: list[bytes]) -> Callable[[], None]:
    """The same payloads appended to a file."""
    file = (folder / "bare").open("ab", buffering=0)

    def run() -> None:
        for _ in range(COMMITS):
            for payload in payloads:
                file.write(payload)
            os.fdatasync(file.fileno())

    return run


def measure(folder: Path, rows: int, group: int) -> list[float]:
    """Median seconds per commit: writer, SQLite, file; each run in turn."""
    made = block(rows)
    payloads = [entry.payload for entry in merge([made] * group)]
    with writer(folder, made, group) as ours:
        runs = [ours, sqlite(folder, payloads), append(folder, payloads)]
        times: list[list[float]] = [[] for _ in runs]
        for _, (run, taken) in itertools.product(range(ROUNDS), list(zip(runs, times, strict=True))):
            began = time.perf_counter()
            run()
            taken.append((time.perf_counter() - began) / COMMITS)
    return [statistics.median(taken[1:]) for taken in times]


def main() -> None:
    """Measure and print."""
    where = sys.argv[1] if len(sys.argv) > 1 else str(Path.cwd())
    for rows, group, of_file in ((1, 1, None), (1, 64, None), (1000, 8, None), (5000, 4, 0.4)):
        with tempfile.TemporaryDirectory(dir=where) as folder:
            ours, bare, file = measure(Path(folder), rows, group)
        name = f"durable_{rows}_rows_x{group}"
        Figure(f"{name}_sqlite", ours * 1e3, "ms/commit", "bare SQLite FULL commits", bare / ours, 0.8).show()
        Figure(
            f"{name}_file", ours * 1e3, "ms/commit", "file append + fdatasync", file / ours, of_file
        ).show()


if __name__ == "__main__":
    main()
