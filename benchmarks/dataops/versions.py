"""Versions of a dataset of a million rows of 34 columns: what a change costs, and reading.

``python -m benchmarks.dataops.versions [ROWS]``. Each figure is the median of pairs measured in turn.
The floor of an append is writing the same rows as Parquet and three fsyncs; that of a removal and of a
corrected label is one commit of a row to SQLite in ``FULL``; that of reading is pyarrow on the same files,
and that of random rows is a mapped Arrow file. Memory is what a process of its own grows by, at its peak.
Delta Lake (``pip install deltalake``) does the same to the same rows, as shipped: it never calls fsync.
"""

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.scan import ipc_stream, scan
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database, write

ROWS, SMALL, APPENDED, CHANGED = 1_000_000, 10_000, 1000, 100
PAIRS, READS = 15, 5
REALS, TEXTS = 24, 6
DATA = "34 columns: 24 reals, 6 texts of 4 values, id, time, version and label"


def rows_of(count: int, seed: int, prefix: str, *, is_random: bool = False) -> pa.Table:
    """Rows with ids that grow with time, as Outrider's own do, or with random ones."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {"id": [f"{prefix}{row:012x}" for row in range(count)]}
    if is_random:
        drawn = rng.bytes(16 * count).hex()
        columns["id"] = [drawn[at : at + 32] for at in range(0, len(drawn), 32)]
    columns["ts"] = pa.array(np.arange(count) + 1_700_000_000_000_000, pa.timestamp("us", "UTC"))
    columns["version"] = pa.array(["1"] * count)
    columns |= {f"inputs.x{place}": rng.normal(size=count) for place in range(REALS)}
    columns |= {f"inputs.t{place}": rng.choice(["a", "bb", "ccc", "dddd"], count) for place in range(TEXTS)}
    columns["label.label"] = rng.integers(0, 5, count)
    return pa.table(columns)


class Store:
    """Dataset of Outrider in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.engine = open_database(f"sqlite:///{folder / 'state.db'}")
        migrations.upgrade(self.engine)
        self.objects = LocalObjects(folder / "objects")

    def change(self, table: pa.Table, *, removed: Sequence[str] = (), source: str = "human") -> None:
        """Append rows or give them other labels, and remove some."""
        batch = Batch.from_arrow(table, model="m")
        origins = [
            Provenance(name, "blurry", source, "held_out" if int(name[-3:], 16) % 5 == 0 else "train")
            for name in table.column("id").to_pylist()
        ]
        with self.engine.connect() as connection:
            draft = changes.prepare(
                connection,
                self.objects,
                dataset="d",
                batch=batch,
                provenance=origins,
                append=True,
                removed=removed,
            )
        with write(self.engine) as connection:
            changes.commit(connection, draft, validation={}, now_us=1)

    def read(self, number: int | None = None, part: str | None = None) -> Batch:
        """Rows of a version."""
        with self.engine.connect() as connection:
            return datasets.read(connection, self.objects, datasets.get(connection, "d", number), part=part)

    def files(self) -> list[Path]:
        """Files of the dataset."""
        return [path for path in self.objects.folder.glob("*/*") if path.is_file()]


def seconds(work: Callable[[], object]) -> float:
    """Time that passes."""
    began = perf_counter()
    work()
    return perf_counter() - began


def show(
    name: str,
    floor: Sequence[float],
    ours: Sequence[float],
    against: str,
    most: float,
    data: str,
    *,
    of: str = "versions",
) -> None:
    """Ratio of the floor to ours, which is met at ``1 / most``."""
    pairs = [under / over for under, over in zip(floor, ours, strict=True)]
    value = statistics.median(ours) * 1000
    figure = Figure.of_pairs(f"dataops.{of}.{name}", value, "ms", against, pairs, 1 / most, data=data)
    figure.show()


def three_syncs(folder: Path, table: pa.Table) -> float:
    """Write rows as Parquet, and three small files, each durable."""

    def work() -> None:
        buffer = BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        for place, content in enumerate([buffer.getvalue(), b"one", b"two"]):
            with (folder / f"floor-{place}").open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

    return seconds(work)


def full_commits(folder: Path) -> Iterator[float]:
    """Commits of one row to SQLite in ``FULL``."""
    database = sqlite3.connect(folder / "floor.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE t (x INTEGER)")
    while True:
        yield seconds(partial(database.execute, "INSERT INTO t VALUES (1)"))


def appends(folder: Path, small: Store, large: Store, rows: int) -> None:
    """Rows onto few and onto many."""
    floor, few, many = [], [], []
    for pair in range(PAIRS):
        tables = [rows_of(APPENDED, 10 + pair, f"{name}{pair:02}-") for name in ("few", "many")]
        floor.append(three_syncs(folder, tables[0]))
        few.append(seconds(partial(small.change, tables[0])))
        many.append(seconds(partial(large.change, tables[1])))
    against = "Parquet write and 3 fsyncs of the same rows"
    show(f"append_to_{SMALL}", floor, few, against, 1.5, f"{APPENDED} rows; {DATA}")
    show(f"append_to_{rows}", floor, many, against, 1.5, f"{APPENDED} rows; {DATA}")
    show("append_flat", few, many, f"the same onto {SMALL}", 1.2, f"{APPENDED} rows onto {rows}; {DATA}")


def random_ids(folder: Path, rows: int) -> None:
    """Rows with random ids onto many of that kind: every id goes to another page of the index."""
    store = Store(folder / "random")
    store.change(rows_of(rows, 2, "", is_random=True))
    floor, took = [], []
    for pair in range(PAIRS):
        table = rows_of(APPENDED, 100 + pair, "", is_random=True)
        floor.append(three_syncs(folder, table))
        took.append(seconds(partial(store.change, table)))
    against = "Parquet write and 3 fsyncs of the same rows"
    show(f"append_random_ids_to_{rows}", floor, took, against, 1.5, f"{APPENDED} rows; {DATA}")


def memory(folder: Path, large: Store) -> None:
    """Growth of a process by the commits of an append, a removal and other labels, one after the other."""
    path, batch = folder / "some.arrow", large.read()
    places = np.random.default_rng(6).choice(batch.rows, 2 * CHANGED, replace=False)
    table = pa.Table.from_batches([batch.take(places).to_arrow()])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    command = [
        sys.executable,
        "-m",
        "benchmarks.dataops.versions",
        "--grow",
        str(folder / "large"),
        str(path),
    ]
    grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    data = f"on {batch.rows} rows; {DATA}"
    Figure("dataops.versions.memory", grown, "MB", "64 MB", 64 / grown, 1.0, data=data).show()


def grow(folder: Path, path: Path) -> None:
    """Print the megabytes by which this process grows at its peak."""
    store = Store(folder)
    with pa.OSFile(str(path), "rb") as file:
        known = pa.ipc.open_file(file).read_all()
    place = known.schema.get_field_index("label.label")
    other = known.slice(CHANGED).set_column(
        place, "label.label", pa.array((known.slice(CHANGED).column(place).to_numpy() + 1) % 5)
    )
    fresh = rows_of(APPENDED, 3, "grown-")
    store.change(rows_of(1, 4, "first-"))  # what a process loads once is not of the commit
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    store.change(fresh)
    store.change(known.slice(0, 0), removed=known.column("id").slice(0, CHANGED).to_pylist())
    store.change(other, source="expert")
    print((status("VmHWM") - before) / 1000)


def status(name: str) -> int:
    """Kilobytes that the kernel tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def random_rows(folder: Path, large: Store) -> None:
    """Random rows through the loader, against the same file mapped."""
    path = folder / "rows.arrow"
    with large.engine.connect() as connection:
        version = datasets.get(connection, "d")
        found = scan(connection, large.objects, version)
    with path.open("wb") as file:
        file.writelines(ipc_stream(found.schema, found))
    rows = MappedRows(version.id, version.digest, path)
    with pa.memory_map(str(path)) as mapped, pa.ipc.open_stream(mapped) as reader:
        plain = reader.read_all()
        rng = np.random.default_rng(5)
        floor, took = [], []
        for _ in range(PAIRS):
            places = rng.integers(0, len(rows), SMALL)
            floor.append(seconds(partial(_values, plain, places)))
            took.append(seconds(partial(rows.take, places)))
    show("random_rows", floor, took, "the same values of a mapped Arrow file", 2, f"{SMALL} rows; {DATA}")


def _values(table: pa.Table, places: NDArray[np.int64]) -> dict[str, Any]:
    """Numbers as arrays, the rest as lists: what a loader hands to a model."""
    some = table.take(pa.array(places))
    return {
        name: column.to_numpy() if pa.types.is_primitive(column.type) else column.to_pylist()
        for name, column in zip(some.column_names, some.columns, strict=True)
    }


def corrections(folder: Path, large: Store, table: pa.Table) -> None:
    """Removals, and other labels."""
    commits = full_commits(folder)
    rng = np.random.default_rng(1)
    chosen = rng.permutation(table.num_rows)[: 2 * PAIRS * CHANGED].reshape(2, PAIRS, CHANGED)
    floor, removed, relabelled = [], [], []
    nothing = table.slice(0, 0)
    place = table.schema.get_field_index("label.label")
    for pair in range(PAIRS):
        ids = table.column("id").take(pa.array(chosen[0, pair])).to_pylist()
        floor.append(next(commits))
        removed.append(seconds(partial(large.change, nothing, removed=ids)))
        some = table.take(pa.array(np.sort(chosen[1, pair])))
        other = some.set_column(place, "label.label", pa.array((some.column(place).to_numpy() + 1) % 5))
        relabelled.append(seconds(partial(large.change, other, source="expert")))
    show(
        f"remove_{CHANGED}",
        floor,
        removed,
        "one FULL commit of SQLite",
        1.5,
        f"of {table.num_rows} rows; {DATA}",
    )
    show(
        f"relabel_{CHANGED}",
        floor,
        relabelled,
        "one FULL commit of SQLite",
        2,
        f"of {table.num_rows} rows; {DATA}",
    )


def readings(large: Store) -> None:
    """All rows of the newest version, one part, and the difference of two."""
    paths = [str(path) for path in large.files()]
    plain, whole, parts = [], [], []
    for _ in range(READS):
        plain.append(seconds(lambda: [pq.read_table(path) for path in paths]))
        whole.append(seconds(large.read))
        parts.append(seconds(partial(large.read, part="held_out")))
    show("read", plain, whole, "pyarrow on the same files", 1.2, DATA)
    show("read_part", [one / 5 for one in plain], parts, "a fifth of pyarrow on the same files", 1.2, DATA)
    with large.engine.connect() as connection:
        last = datasets.get(connection, "d")
        before = datasets.get(connection, "d", 2)
        runs = [seconds(lambda: datasets.diff(connection, large.objects, before, last)) for _ in range(READS)]
        found = datasets.diff(connection, large.objects, before, last)
    rows = len(found.added) + len(found.removed) + len(found.changed)
    value = statistics.median(runs) / rows * 1e6
    Figure("dataops.versions.diff_row", value, "us", "1.5 us", 1.5 / value, 1.0, n=rows, data=DATA).show()


def delta(folder: Path, table: pa.Table) -> None:
    """The same with Delta Lake, if it is installed."""
    try:
        from deltalake import DeltaTable, write_deltalake
    except ImportError:
        print("deltalake is not installed: pip install deltalake", file=sys.stderr)
        return
    path = str(folder / "delta")
    write_deltalake(path, table)
    appended = []
    for pair in range(PAIRS):
        more = rows_of(APPENDED, 50 + pair, f"delta{pair:02}-")
        appended.append(seconds(partial(write_deltalake, path, more, mode="append")))
    ids = table.column("id").slice(0, CHANGED).to_pylist()
    some = table.slice(CHANGED, CHANGED)

    def relabel() -> None:
        merge = DeltaTable(path).merge(some, "s.id = t.id", source_alias="s", target_alias="t")
        merge.when_matched_update({"`label.label`": "s.`label.label`"}).execute()

    quoted = ", ".join(f"'{name}'" for name in ids)
    times = {
        f"append_{APPENDED}": statistics.median(appended),
        f"remove_{CHANGED}": seconds(lambda: DeltaTable(path).delete(f"id in ({quoted})")),
        f"relabel_{CHANGED}": seconds(relabel),
        "read": statistics.median(
            [seconds(lambda: DeltaTable(path).to_pyarrow_table()) for _ in range(READS)]
        ),
    }
    for name, took in times.items():
        Figure(f"dataops.versions.delta.{name}", took * 1000, "ms", "recorded", 1.0, data=DATA).show()


def main() -> None:
    """Print all figures."""
    if sys.argv[1:2] == ["--grow"]:
        grow(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        small, large = Store(folder / "small"), Store(folder / "large")
        small.change(rows_of(SMALL, 0, "r"))
        table = rows_of(rows, 1, "r")
        took = seconds(partial(large.change, table))
        print(f"{rows} rows committed in {took:.1f} s", file=sys.stderr)
        size = sum(path.stat().st_size for path in large.files())
        appends(folder, small, large, rows)
        corrections(folder, large, table)
        grown = sum(path.stat().st_size for path in large.files()) / size
        changed = 3 * PAIRS
        Figure(
            "dataops.versions.disk",
            grown,
            f"size after {changed} versions",
            "1.03",
            1.03 / grown,
            1.0,
            data=DATA,
        ).show()
        readings(large)
        random_rows(folder, large)
        memory(folder, large)
        random_ids(folder, rows)
        delta(folder, table)


if __name__ == "__main__":
    main()
