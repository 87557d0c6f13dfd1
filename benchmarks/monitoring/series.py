"""Series of a day at 1,000 records a second: reading them, and what counting them costs the worker.

``python -m benchmarks.monitoring.series``. The counts are those of one model with 40 assertions, four slices
and two versions: 86.4 million records, half of them labelled, all of them calls. Reading is held against one
plain ``GROUP BY`` over the rows of the flags; committing against the same units without labels and calls.
"""

import statistics
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np
from sqlalchemy import Engine

from benchmarks.figure import Figure
from outrider.dataops.flags.rate_limit import FlagBudget, count_flags
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.cube import FINE_US, roll_up
from outrider.dataops.ledger.measures import RecordKeys, measure_rows
from outrider.dataops.ledger.minutes import HOUR_US, MINUTE_US
from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database, write
from outrider.dataops.state.rows import insert_rows
from outrider.dataops.state.series_tables import MeasureCount, OutcomeCount
from outrider.dataops.state.tables import AssertionRow, FlagCount, RecordCount
from outrider.monitor.views.series.answer import SeriesRequest, performance_json, series_json
from outrider.monitor.views.series.counts import SeriesCut

NOW_US = 1_790_000_000_000_000 // HOUR_US * HOUR_US + 30 * MINUTE_US
MINUTES = 1440
RECORDS_PER_MINUTE = 60_000
ASSERTIONS = [f"assertion_{n}" for n in range(40)]
SLICES = ("a", "b", "c", "d")
READS = 5
UNITS = 40
UNIT_ROWS = 1000
DATA = "simulated, seed 0"


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory() as name:
        engine = open_database(f"sqlite:///{Path(name) / 'state.db'}")
        migrations.upgrade(engine)
        fill(engine)
        read(engine)
        engine.dispose()
    with tempfile.TemporaryDirectory() as name:
        commits(Path(name))


def fill(engine: Engine) -> None:
    """Counts of a day, rolled up as the worker leaves them."""
    rng = np.random.default_rng(0)
    begin = NOW_US - MINUTES * MINUTE_US
    starts = [begin + minute * MINUTE_US for minute in range(MINUTES)]
    old = NOW_US - FINE_US[0]
    fine = sorted(
        {start if start >= old // HOUR_US * HOUR_US else start // HOUR_US * HOUR_US for start in starts}
    )
    part = RECORDS_PER_MINUTE // len(SLICES)
    with write(engine) as connection:
        insert_rows(
            connection,
            AssertionRow,
            [
                ("m", one, "r", "assertion", "warning", "", "", True, 0, "", 0, 0, "", "", 0, "[]", False)
                for one in ASSERTIONS
            ],
        )
        records = [("m", one, start, version_at(start), part, part) for one in SLICES for start in starts]
        insert_rows(connection, RecordCount, records)
        for assertion in ASSERTIONS:
            fired = rng.binomial(part, 0.02, (len(SLICES), MINUTES)).tolist()
            insert_rows(
                connection,
                FlagCount,
                [
                    ("m", "champion", assertion, "r", one, start, version_at(start), n, n, n)
                    for one, row in zip(SLICES, fired, strict=True)
                    for start, n in zip(starts, row, strict=True)
                ],
            )
        keys = list(product(fine, SLICES))
        for measure in ("latency_s", "input_tokens", "output_tokens", "cost_usd"):
            rows = [
                ("m", measure, start, version_at(start), one, bucket, 500, 500.0, 500.0, 500.0 * bucket)
                for start, one in keys
                for bucket in range(200, 230)
            ]
            insert_rows(connection, MeasureCount, rows)
        cells = list(product("01", "01", range(25, 50)))
        outcomes = [
            ("m", start, version_at(start), one, said, true, said == true, bucket, 75, 75.0, 75.0, 50.0, 9.0)
            for start, one in keys
            for said, true, bucket in cells
        ]
        insert_rows(connection, OutcomeCount, outcomes)
        roll_up(connection, "m", before_us=0, now_us=NOW_US)


def version_at(start_us: int) -> str:
    """Version of a minute: another one since noon of the day."""
    return "1" if start_us < NOW_US - MINUTES // 2 * MINUTE_US else "2"


def read(engine: Engine) -> None:
    """A day of records and flags, of calls and of performance, against one plain query."""
    asked = SeriesRequest(now_us=NOW_US)
    cut = SeriesCut("m")
    plain = (
        f"SELECT assertion, version, (minute_us - {NOW_US}) / 300000000, sum(flags) FROM flag_count"
        " WHERE model = 'm' GROUP BY 1, 2, 3"
    )
    with engine.connect() as connection:
        works: dict[str, Callable[[], object]] = {
            "flags": lambda: series_json(connection, cut, asked, measures=("records", "flags")),
            "calls": lambda: series_json(
                connection, cut, asked, measures=("latency", "input_tokens", "output_tokens", "cost")
            ),
            "performance": lambda: performance_json(connection, cut, asked),
        }
        floor = median(lambda: connection.exec_driver_sql(plain).all())
        said = f"{MINUTES * RECORDS_PER_MINUTE:,} records, 40 assertions, 4 slices, 2 versions; {DATA}"
        for name, work in works.items():
            took = median(work)
            Figure(
                f"monitoring.series.read_{name}", took, "s", "one GROUP BY over the flags' rows",
                floor / took, 1 / 3, data=said,
            ).show()  # fmt: skip


def commits(folder: Path) -> None:
    """Time of a committed record with its label, and with four measures, beside the same without."""
    seconds = {name: commit_seconds(folder / name, name) for name in ("plain", "calls", "labels")}
    for name in ("calls", "labels"):
        ratio = seconds["plain"] / seconds[name]
        more = 1e6 * (seconds[name] - seconds["plain"]) / UNIT_ROWS
        against = "the commit of the same records alone"
        if name == "labels":
            against += ", without writing the labels themselves"
        said = f"{UNITS} units of {UNIT_ROWS} records, median; {DATA}"
        Figure(f"monitoring.series.commit_{name}", more, "µs per record", against, ratio, data=said).show()


def commit_seconds(folder: Path, what: str) -> float:
    """Median time of a unit's commit."""
    folder.mkdir()
    engine = open_database(f"sqlite:///{folder / 'state.db'}")
    migrations.upgrade(engine)
    rng, took = np.random.default_rng(0), []
    for number in range(UNITS):
        effects = unit(number, rng, what)
        began = perf_counter()
        if what == "calls":
            add_calls(effects, rng)
        with write(engine) as connection:
            count_flags(connection, effects, FlagBudget())
            ledger.apply(connection, effects)
        took.append(perf_counter() - began)
    engine.dispose()
    return statistics.median(took)


def unit(number: int, rng: np.random.Generator, what: str) -> Effects:
    """A block of records, and one of their labels."""
    seq, received = 2 * number + 1, NOW_US + number * 1_000_000
    effects = Effects("m", "champion", seq + 1, received={seq: received, seq + 1: received}, version="1")
    ids = [f"r{number}-{row}" for row in range(UNIT_ROWS)]
    said = rng.integers(0, 2, UNIT_ROWS)
    sure = rng.integers(5000, 10_000, UNIT_ROWS).tolist()
    columns = {
        "model": "m", "id": ids, "seq": seq, "row": list(range(UNIT_ROWS)), "ts_us": received,
        "digest": list(range(UNIT_ROWS)), "version": "1", "entity": None, "slice": "a",
        "predicted": said.astype(str).tolist(), "weight": 1.0, "by_replica": False, "confidence": sure,
        "is_unnamed": None, "class_scores": None, "groups": None, "is_other_class": None,
    }  # fmt: skip
    effects.records.add(UNIT_ROWS, columns)
    if what == "labels":
        truth = np.where(rng.random(UNIT_ROWS) < 0.9, said, 1 - said).astype(str).tolist()
        labels = {
            "seq": seq + 1, "row": list(range(UNIT_ROWS)), "model": "m", "record_id": ids, "source": "human",
            "value": truth, "label": '{"label": 1}', "ts_us": received, "received_us": received,
            "entity": None, "is_other_class": None, "key": None,
        }  # fmt: skip
        effects.labels.add(UNIT_ROWS, labels)
    return effects


def add_calls(effects: Effects, rng: np.random.Generator) -> None:
    """Four measures of each record."""
    minute = next(iter(effects.received.values())) // MINUTE_US * MINUTE_US
    keys = RecordKeys(["1"] * UNIT_ROWS, ["a"] * UNIT_ROWS, np.full(UNIT_ROWS, minute), np.ones(UNIT_ROWS))
    names = ("latency_s", "input_tokens", "output_tokens", "cost_usd")
    effects.measures += measure_rows("m", {name: rng.lognormal(0, 1, UNIT_ROWS) for name in names}, keys)


def median(work: Callable[[], object]) -> float:
    """Median time that passes."""
    took = []
    for _ in range(READS):
        began = perf_counter()
        work()
        took.append(perf_counter() - began)
    return statistics.median(took)


if __name__ == "__main__":
    main()
