"""Profiles of a million records of 15 floats and 5 strings, against datasketches and a bare bincount.

``whole``: quantiles, distinct values, exact counts and moments of all 20 columns at once. The floor is
datasketches called directly: KLL (k = 200) of every float column as one float32 array, HyperLogLog of the
dictionaries of the strings. It has no distinct values of numbers, which its Python takes one by one, and no
counts.

``blocks``: what the worker does with blocks of 64: gathers them, counts them when their minute ends (here at
60,000 records) and packs the bytes that are stored; then these are read and an e-process of every column
takes the counts of its bins. The floor is a bincount of every column of each block
over bins that were worked out before. ``bytes`` are the bytes stored per record.

CPU seconds of one thread, medians of five, floor and product in turn. whylogs and River run the same data in
an environment of their own, where ``python benchmarks/monitoring/_profile_peers.py`` prints their times.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import datasketches
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.assertions.detection import ShiftDetector
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.dataops.ledger.profiles import MINUTE_US, LayoutBook, ProfileBuffer, ProfileRow

ROWS, REFERENCE, BLOCK, MINUTE_ROWS, RUNS = 1_000_000, 100_000, 64, 60_000, 5
FLOATS, STRINGS = 15, 5
DATA = f"{FLOATS} normal columns, {STRINGS} of 20 to 24 strings, seed 0"


def traffic(rows: int, *, seed: int) -> Batch:
    """Records without entities: each counts as its own."""
    rng = np.random.default_rng(seed)
    columns = {f"inputs.x{n}": rng.normal(n, n + 1.0, rows) for n in range(FLOATS)}
    for n in range(STRINGS):
        names = pa.array([f"category {k}" for k in range(20 + n)])
        columns[f"inputs.c{n}"] = names.take(pa.array(rng.integers(0, 20 + n, rows)))
    return Batch.from_columns(columns, model="m")


def direct(batch: Batch) -> None:
    """Sketches of whole columns without anything around them."""
    for n in range(FLOATS):
        sketch = datasketches.kll_floats_sketch(200)
        sketch.update(batch.column(f"inputs.x{n}").astype(np.float32))
    for n in range(STRINGS):
        counter = datasketches.hll_sketch(10)
        for name in batch.arrow(f"inputs.c{n}").dictionary_encode().dictionary.to_pylist():
            counter.update(name)


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    began = time.process_time()
    work()
    return time.process_time() - began


def whole(batch: Batch, layout: ProfileLayout) -> Figure:
    """Whole columns at once."""
    pairs = [
        (seconds(lambda: direct(batch)), seconds(lambda: Profile.of(batch, layout))) for _ in range(RUNS)
    ]
    ours = statistics.median(own for _, own in pairs)
    floor = statistics.median(own for own, _ in pairs)
    return Figure.of_pairs(
        "monitoring.profile.whole", ours, "s", f"{floor:.3g} s datasketches",
        [theirs / own for theirs, own in pairs], 1 / 1.3, data=DATA,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Watched:
    """E-process of the columns of one kind: of each the mean rank of its bins, padded to the longest."""

    places: Sequence[int]
    bins: int
    detector: ShiftDetector

    @classmethod
    def of(cls, layout: ProfileLayout, reference: Profile, kind: str) -> "Watched":
        """Of all columns of a kind, against the counts of the reference."""
        places = [at for at, column in enumerate(layout.columns) if column.kind == kind]
        bins = max(layout.columns[at].bins for at in places)
        ranks = (np.arange(bins) + 0.5) / bins
        counts = counts_of(reference, places, bins)[:, None]
        return cls(places, bins, ShiftDetector(counts, ranks, horizon=1000))

    def update(self, profile: Profile) -> None:
        """Take the counts of one more minute."""
        self.detector.update(counts_of(profile, self.places, self.bins))


def counts_of(profile: Profile, places: Sequence[int], bins: int) -> NDArray[np.int64]:
    """Records of the bins of some columns, shape (columns, bins)."""
    found = np.zeros((len(places), bins), dtype=np.int64)
    for row, at in enumerate(places):
        own = profile.counts_at(at)[0][: profile.layout.columns[at].bins]
        found[row, : len(own)] = own
    return found


def blocks(batch: Batch, layout: ProfileLayout, reference: Profile) -> list[Figure]:
    """Blocks of 64 as the worker gathers them."""
    cut = [Batch.from_arrow(batch.to_arrow().slice(at, BLOCK)) for at in range(0, ROWS - BLOCK, BLOCK)]
    rows = sum(one.rows for one in cut)
    places = [np.full(one.rows, seq) for seq, one in enumerate(cut)]  # the worker has them anyway
    bins = np.random.default_rng(0).integers(0, 68, (len(cut), FLOATS + STRINGS, BLOCK))
    detectors = [Watched.of(layout, reference, kind) for kind in ("numeric", "category")]
    pairs, stored = [], [0]
    for _ in range(RUNS):
        floor = seconds(lambda: [np.bincount(one, minlength=68) for block in bins for one in block])
        own = seconds(lambda: stored.append(gathered(cut, places, layout, detectors)))
        pairs.append((floor / rows * 1e6, own / rows * 1e6))
    ours, floor = (statistics.median(pair[at] for pair in pairs) for at in (1, 0))
    return [
        Figure.of_pairs(
            "monitoring.profile.blocks", ours, "µs per record", f"{floor:.3g} µs bincount",
            [theirs / own for theirs, own in pairs], 1 / 2, data=DATA,
        ),
        Figure(
            "monitoring.profile.bytes", stored[-1] / rows, "bytes per record", "64", 64 * rows / stored[-1],
            1.0, data=DATA,
        ),
    ]  # fmt: skip


def gathered(
    cut: list[Batch],
    places: list[NDArray[np.int64]],
    layout: ProfileLayout,
    detectors: Sequence[Watched] = (),
) -> int:
    """Bytes that the profiles of all minutes take, each of which detectors are shown."""
    buffer, book, stored = ProfileBuffer(), LayoutBook(layout), 0
    for seq, one in enumerate(cut):
        at_us = seq * BLOCK // MINUTE_ROWS * MINUTE_US
        buffer.add(one, places[seq], {seq: at_us})
        stored += shown(buffer.drain("champion", book, now_us=at_us), layout, detectors)
    rest = buffer.drain("champion", book, now_us=0, is_last=True)
    return stored + shown(rest, layout, detectors)


def shown(rows: Sequence[ProfileRow], layout: ProfileLayout, detectors: Sequence[Watched]) -> int:
    """Bytes of stored profiles, once detectors have read them."""
    for row in rows:
        profile = Profile.from_bytes(row.payload, layout)
        for one in detectors:
            one.update(profile)
    return sum(len(row.payload) for row in rows)


if __name__ == "__main__":
    fitted = traffic(REFERENCE, seed=1)
    layout = ProfileLayout.fit(fitted)
    current = traffic(ROWS, seed=0)
    whole(current, layout).show()
    for figure in blocks(current, layout, Profile.of(fitted, layout)):
        figure.show()
