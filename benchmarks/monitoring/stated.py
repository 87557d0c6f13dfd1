"""Values that records state through the book that names the heaviest, against a Counter of the same values.

In units of 1,024 texts as the worker has them: of 20 shops, of a million users by Zipf's law, and new ones
without end, ten seconds of receipt each. ``commit`` adds to a unit's rows of ``record`` and its counts in
``state.db`` the rows of the book in which 1,024 new values were met, against the same commit without them.
CPU seconds of one thread, floor and product in turn.
"""

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from sqlalchemy import Engine

from benchmarks.figure import Figure
from outrider.dataops.flags.rate_limit import FlagBudget, count_flags
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.minutes import DAY_US, minute_of
from outrider.dataops.ledger.stated_values import StatedValues
from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database, write

ROWS, UNIT, RUNS, COMMITS = 200_000, 1024, 7, 60
AFTER_US = 10_000_000
START_US = 20_000 * DAY_US


def traffic(kind: str) -> list[list[str]]:
    """Units of stated values."""
    rng = np.random.default_rng(0)
    if kind == "shops":
        texts = [f"shop {at}" for at in rng.integers(0, 20, ROWS)]
    elif kind == "users":
        texts = [f"user {at}" for at in np.minimum(rng.zipf(1.2, ROWS), 1_000_000)]
    else:
        texts = [f"{at}-once" for at in range(ROWS)]
    return [texts[start : start + UNIT] for start in range(0, ROWS, UNIT)]


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    began = time.process_time()
    work()
    return time.process_time() - began


def booked(units: Sequence[list[str]]) -> None:
    """Let a book meet units."""
    stated = StatedValues("m")
    for at, unit in enumerate(units):
        minute = minute_of(START_US + at * AFTER_US)
        stated.meet("slice", unit, np.full(len(unit), minute))


def counted(units: Sequence[list[str]]) -> None:
    """Count units, without a bound."""
    found: Counter[str] = Counter()
    for unit in units:
        found.update(unit)


def figure(kind: str) -> Figure:
    """Microseconds per record."""
    units = traffic(kind)
    pairs = [(seconds(lambda: counted(units)), seconds(lambda: booked(units))) for _ in range(RUNS)]
    floor, ours = (1e6 * statistics.median(side) / ROWS for side in zip(*pairs, strict=True))
    return Figure.of_pairs(
        f"monitoring.stated.{kind}", ours, "µs per record", f"{floor:.3g} µs in a Counter",
        [theirs / own for theirs, own in pairs], data=f"{ROWS} values in units of {UNIT}, seed 0",
    )  # fmt: skip


def commit(engine: Engine, seq: int, unit: Sequence[str], stated: StatedValues | None) -> None:
    """Commit the records of one unit, with the book where there is one."""
    at_us = START_US + seq * AFTER_US
    effects = Effects("m", "champion", seq, received_us=at_us, received={seq: at_us})
    columns = dict.fromkeys(effects.records.names) | {
        "model": "m", "id": [f"r{seq}-{row}" for row in range(len(unit))], "seq": seq,
        "row": list(range(len(unit))), "ts_us": at_us, "digest": list(range(len(unit))), "version": "1",
        "slice": "a", "predicted": "1", "weight": 1.0, "by_replica": False,
    }  # fmt: skip
    effects.records.add(len(unit), columns)
    with write(engine) as connection:
        count_flags(connection, effects, FlagBudget())
        ledger.apply(connection, effects)
        if stated is not None:
            stated.store(connection)


def commits(folder: Path) -> Figure:
    """What the rows of a flooded book add to a commit, meeting left out."""
    engines = []
    for name in ("without", "with"):
        engine = open_database(f"sqlite:///{folder}/{name}.db")
        migrations.upgrade(engine)
        engines.append(engine)
    stated, pairs = StatedValues("m"), []
    for seq, unit in enumerate(traffic("flood")[:COMMITS], 1):
        minute = minute_of(START_US + seq * AFTER_US)
        stated.meet("slice", unit, np.full(len(unit), minute))
        pairs.append(
            (
                seconds(lambda: commit(engines[0], seq, unit, None)),  # noqa: B023  # called at once
                seconds(lambda: commit(engines[1], seq, unit, stated)),  # noqa: B023
            )
        )
    floor, ours = (1e6 * statistics.median(side) / UNIT for side in zip(*pairs, strict=True))
    return Figure.of_pairs(
        "monitoring.stated.commit", ours, "µs per record", f"{floor:.3g} µs without the book",
        [theirs / own for theirs, own in pairs], data=f"{COMMITS} units of {UNIT} new values",
    )  # fmt: skip


def main() -> None:
    """Print one JSON line per figure."""
    for kind in ("shops", "users", "flood"):
        figure(kind).show()
    with tempfile.TemporaryDirectory() as folder:
        commits(Path(folder)).show()


if __name__ == "__main__":
    main()
