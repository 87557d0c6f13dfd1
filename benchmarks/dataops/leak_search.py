"""Search of leaks for a commit of 1,000 rows: time and memory, onto few rows and onto many.

``python -m benchmarks.dataops.leak_search [ROWS]``. Rows of numbers and rows of texts; the rows before lie
in one part that learns and one that judges. Each size runs in a process of its own; the first commit, which
makes the indexes, is told apart. Memory is what the process grows by at its peak, pages of mapped files
apart: the system takes those back.
"""

import statistics
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.leak_moves import KnownRows, settle
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.loaders.indexed_rows import IndexedVersion
from outrider.dataops.state.database import write

from .versions import APPENDED, Store, rows_of, seconds, status

ROWS = (10_000, 100_000, 1_000_000)
COMMITS = 5
WORDS, MOST_WORDS = 20_000, 24
DATA = {
    "numbers": "34 columns: 24 reals, 6 texts of 4 values, id, time, version and label",
    "texts": "texts of 6 to 24 of 20,000 words, by Zipf's law",
}


def texts_of(count: int, seed: int, prefix: str) -> pa.Table:
    """Rows of texts."""
    rng = np.random.default_rng(seed)
    words = np.array(["".join(rng.choice(list("abcdefghiklmnoprstu"), 6)) for _ in range(WORDS)])
    said = words[np.minimum(rng.zipf(1.3, (count, MOST_WORDS)) - 1, WORDS - 1)]
    lengths = rng.integers(6, MOST_WORDS, count)
    texts = [" ".join(row[:length]) for row, length in zip(said, lengths, strict=True)]
    columns: dict[str, Any] = {"id": [f"{prefix}{row:012x}" for row in range(count)], "inputs.text": texts}
    return pa.table(columns | {"label.label": rng.integers(0, 5, count)})


MAKE = {"numbers": rows_of, "texts": texts_of}


def commit(store: Store, folder: Path, table: pa.Table) -> None:
    """Settle and commit rows, as the trainer does."""
    batch = Batch.from_arrow(table, model="m")
    origins = [
        Provenance(name, "blurry", "human", "held_out" if row % 5 == 0 else "train")
        for row, name in enumerate(batch.keys.tolist())
    ]
    with store.engine.connect() as connection:
        version = datasets.get(connection, "d")
        sides = {
            part: IndexedVersion(
                connection, store.objects, version, part=part, without=batch.keys.tolist(), cache=folder
            )
            for part in ("train", "held_out")
        }
        known = KnownRows({"train": sides["train"]}, {"held out": sides["held_out"]}, ("train", "held out"))
        settled = settle(batch, origins, known)
        draft = changes.prepare(
            connection,
            store.objects,
            dataset="d",
            batch=settled.batch,
            provenance=settled.provenance,
            append=True,
        )
    with write(store.engine) as connection:
        changes.commit(connection, draft, validation={}, now_us=1)


def grow(folder: Path, kind: str) -> None:
    """Print the seconds of the first commit, the median of others, and the megabytes of growth."""
    store, cache = Store(folder), folder / "arrow"
    tables = [MAKE[kind](APPENDED, 100 + at, f"new{at}-") for at in range(COMMITS + 2)]
    first = seconds(partial(commit, store, cache, tables[0]))
    pa.default_memory_pool().release_unused()
    before, peak, done = status("RssAnon"), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], status("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    took = [seconds(partial(commit, store, cache, table)) for table in tables[1:]]
    done.set()
    watcher.join()
    print(first, statistics.median(took[1:]), max(peak[0] - before, 1) / 1000)


def main() -> None:
    """Print all figures."""
    if sys.argv[1:2] == ["--grow"]:
        grow(Path(sys.argv[2]), sys.argv[3])
        return
    sizes = [int(sys.argv[1])] if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory(dir=".") as name:
        for kind, make in MAKE.items():
            least = 0.0
            for rows in sizes:
                folder = Path(name) / f"{kind}-{rows}"
                store = Store(folder)
                store.change(make(rows, 1, "r"))
                store.engine.dispose()
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.dataops.leak_search",
                    "--grow",
                    str(folder),
                    kind,
                ]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                first, took, grown = map(float, said.split())
                least = least or took
                name_of = f"dataops.leak_search.{kind}_{rows}"
                data = f"{APPENDED} rows onto {rows}; {DATA[kind]}"
                Figure(f"{name_of}.first", first, "s", "recorded", 1.0, data=data).show()
                against = f"the same onto {sizes[0]}"
                Figure(name_of, took, "s", against, least / took, 1 / 1.5, data=data).show()
                Figure(f"{name_of}.memory", grown, "MB", "64 MB", 64 / grown, 1.0, data=data).show()


if __name__ == "__main__":
    main()
