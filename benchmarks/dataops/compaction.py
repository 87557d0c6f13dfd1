"""A dataset of a thousand appends, read with and without packing its files.

``python -m benchmarks.dataops.compaction [APPENDS [ROWS]]``. Each figure is a read of the packed dataset
against the same read before; that of the newest version also against pyarrow on one file of the same rows.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.figure import Figure
from outrider.dataops.upkeep.compaction import compact

from .versions import APPENDED, DATA, READS, Store, rows_of, seconds, show

APPENDS = 1000


def main() -> None:
    """Print all figures."""
    appends = int(sys.argv[1]) if len(sys.argv) > 1 else APPENDS
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else APPENDED
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        store = Store(folder / "store")
        for number in range(appends):
            store.change(rows_of(rows, number, f"{number:04}-"))
        some = max(appends // 10, 1)
        reads: dict[str, Callable[[], object]] = {
            "newest": store.read,
            "part": partial(store.read, part="held_out"),
            "tenth": partial(store.read, some),
        }
        before = {what: [seconds(read) for _ in range(READS)] for what, read in reads.items()}
        size = sum(path.stat().st_size for path in store.files())
        began = seconds(partial(compact, store.engine, store.objects, "d"))
        with store.engine.connect() as connection:
            digest = connection.exec_driver_sql("SELECT DISTINCT sha256 FROM dataset_file").scalars().all()
        packed = sum(store.objects.size(each) for each in digest)
        after = {what: [seconds(read) for _ in range(READS)] for what, read in reads.items()}
        said = f"{appends} appends of {rows} rows; {DATA}"
        for what in reads:
            show(
                f"read_{what}", before[what], after[what], "the same before packing", 1, said, of="compaction"
            )
        one = folder / "one.parquet"
        pq.write_table(pa.Table.from_batches([store.read().to_arrow()]), one, compression="zstd")
        plain = [seconds(partial(pq.read_table, one)) for _ in range(READS)]
        show("read_packed", plain, after["newest"], "pyarrow on one file", 1.2, said, of="compaction")
        Figure(
            "dataops.compaction.pack", began, "s", "recorded", packed / size, data=f"{said}; ratio: size"
        ).show()


if __name__ == "__main__":
    main()
