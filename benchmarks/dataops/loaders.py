"""Random rows of a dataset version through its loaders, against memory-mapped Arrow.

``python -m benchmarks.dataops.loaders [ROWS]``. The floor takes the same rows, as many at a time, of a table
of pyarrow over the same mapped file: once as numpy arrays and lists, as the loader gives them, once left as
Arrow. Each figure is the median of pairs measured in turn.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.scan import ipc_stream, scan
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataset_reference import CACHED_ROWS

from .versions import DATA, PAIRS, ROWS, Store, rows_of, seconds, show

TAKEN = 10_000
SIZES = (TAKEN, 256)
"""Rows at a time: all of them, and batches as one trains on."""


def mapped_table(path: Path) -> pa.Table:
    """Table over a mapped file."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all()


def arrow_rows(table: pa.Table, places: NDArray[np.int64]) -> dict[str, Any]:
    """Rows as pyarrow gives them: arrays of numbers and times, lists of anything else."""
    found = table.take(pa.array(places))
    columns = {}
    for field in found.schema:
        values = found.column(field.name)
        columns[field.name] = values.to_pylist() if pa.types.is_string(field.type) else values.to_numpy()
    return columns


def arrow_alone(table: pa.Table, places: NDArray[np.int64]) -> object:
    """Rows that stay Arrow."""
    return table.take(pa.array(places))


def in_steps(work: Callable[[Any], object], places: NDArray[np.int64], size: int) -> None:
    """Rows so many at a time."""
    for begin in range(0, len(places), size):
        work(places[begin : begin + size])


def main() -> None:
    """Print all figures."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        store = Store(folder / "store")
        store.change(rows_of(rows, 1, "r"))
        path = folder / "rows.arrow"
        with store.engine.connect() as connection, path.open("wb") as file:
            found = scan(connection, store.objects, datasets.get(connection, "d"), batch_rows=CACHED_ROWS)
            file.writelines(ipc_stream(found.schema, found))
        mapped, table = MappedRows("d@1", "digest", path), mapped_table(path)
        torch_rows = mapped.to_torch()
        rng = np.random.default_rng(0)
        floors: dict[str, Callable[[Any], object]] = {
            "": partial(arrow_rows, table),
            "_left_as_arrow": partial(arrow_alone, table),
        }
        for size in SIZES:
            for suffix, floor in floors.items():
                under, over = [], []
                for _ in range(PAIRS):
                    places = rng.integers(0, rows, TAKEN)
                    under.append(seconds(partial(in_steps, floor, places, size)))
                    over.append(seconds(partial(in_steps, torch_rows.__getitem__, places, size)))
                kept = "left as Arrow" if suffix else "as numpy arrays and lists"
                said = f"{TAKEN} random rows of {rows}, {size} at a time; {DATA}"
                show(
                    f"take_{size}{suffix}", under, over, f"memory-mapped Arrow, {kept}", 2, said, of="loaders"
                )


if __name__ == "__main__":
    main()
