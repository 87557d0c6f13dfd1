"""Tickets of drift: false ones by kind of traffic, planted shifts, and what a window costs.

False ones are simulated on counts, as the service decides: a model of 10 columns with 5 cuts each, the first
day of hours as reference until the week is over, then the week, for two weeks. Planted shifts go through the
service's own tables: profiles of hours in, incidents out.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.assertions.drift import ShareStreams, ShareWatch, WatchRule
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.behavioral_tests.statistics import wilson_interval
from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.explanation import us_of
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.ledger.profiles import LayoutRow, ProfileRow
from outrider.dataops.ledger.stored_profiles import insert_layouts, insert_profiles
from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database, write

Floats = NDArray[np.float64]

ALPHA, COLUMNS, DAY, WEEK, ROWS = 0.01, 10, 24, 168, 600
HOUR_US = 3_600_000_000
CELLS = np.array([0.1, 0.15, 0.25, 0.25, 0.15, 0.1])
ABOVE = np.tri(6, 5, -1)
"""Cells above each cut, shape (cells, cuts)."""
ENTITIES, RUN_MINUTES = 20, 30.0


def independent(rng: np.random.Generator, hours: int) -> Floats:
    """Records of each hour by cell, shape (columns, hours, cells)."""
    return rng.multinomial(ROWS, CELLS, (COLUMNS, hours)).astype(np.float64)


def weighted(rng: np.random.Generator, hours: int) -> Floats:
    """Records of which some stand for eight others."""
    heavy = rng.multinomial(ROWS // 8, CELLS, (COLUMNS, hours))
    return (8 * heavy + rng.multinomial(ROWS // 2, CELLS, (COLUMNS, hours))).astype(np.float64)


def entities(rng: np.random.Generator, hours: int) -> Floats:
    """Twenty entities with one value for half an hour each, in 30 records an hour."""
    runs = int(hours * 60 / RUN_MINUTES) + 3
    found = np.zeros((COLUMNS, hours, len(CELLS)))
    for _ in range(ENTITIES):
        edges = np.cumsum([-rng.uniform(0, RUN_MINUTES), *[RUN_MINUTES] * runs])
        for column in range(COLUMNS):
            own = rng.choice(len(CELLS), runs, p=CELLS)
            for cell in range(len(CELLS)):
                spent = np.concatenate([[0.0], np.cumsum((own == cell) * RUN_MINUTES)])
                found[column, :, cell] += np.diff(np.interp(60.0 * np.arange(hours + 1), edges, spent)) / 2
    return found


def rhythm(rng: np.random.Generator, hours: int) -> Floats:
    """Volumes and shares of every column with a period of a day, shares by up to 15 points."""
    hour = np.arange(hours)
    volume = np.maximum(5, ROWS * (1 + 0.8 * np.sin(2 * np.pi * (hour - 9) / 24))).astype(np.int64)
    found = np.zeros((COLUMNS, hours, len(CELLS)))
    for column in range(COLUMNS):
        swing = rng.uniform(0, 0.6) * np.sin(2 * np.pi * (hour - rng.uniform(0, 24)) / 24)
        tilted = CELLS * np.exp(swing[:, None] * (np.arange(len(CELLS)) - 2.5) / 2)
        found[column] = rng.multinomial(volume, tilted / tilted.sum(axis=1, keepdims=True))
    return found


KINDS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "plain": independent, "weighted": weighted, "entities": entities, "rhythm": rhythm,
}  # fmt: skip


def ever_alarms(counts: Floats) -> bool:
    """True where two weeks of hours open a ticket."""
    hits = np.einsum("ktc,cj->kjt", counts, ABOVE).reshape(COLUMNS * ABOVE.shape[1], -1)
    seen = np.repeat(counts.sum(axis=-1), ABOVE.shape[1], axis=0)
    column = np.repeat(np.arange(COLUMNS), ABOVE.shape[1])
    streams = ShareStreams(np.full(len(hits), 0.05), column, column, np.ones(len(hits)))
    for known, until in ((DAY, WEEK), (WEEK, 2 * WEEK)):
        watch = ShareWatch(hits[:, :known], seen[:, :known], streams, WatchRule(ALPHA / 2, WEEK))
        if any(watch.look(hits[:, at], seen[:, at]).any() for at in range(known, until)):
            return True
    return False


def show_false_alarms(runs: int) -> None:
    """Print the share of models with any ticket, by kind of traffic."""
    for kind, draw in KINDS.items():
        rng = np.random.default_rng(43)
        alarms = sum(ever_alarms(draw(rng, 2 * WEEK)) for _ in range(runs))
        _, high = wilson_interval(alarms, runs)
        Figure(
            f"monitoring.drift_tickets.{kind}", float(high), "upper 95 % bound, models with one",
            "1.2 %", 0.012 / float(high), 1.0, n=runs, low=0.0, high=float(high),
            data=f"{alarms} of {runs:,} models x {COLUMNS} columns x 5 cuts x 2 weeks of hours, seed 43",
        ).show()  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plant:
    """Shift of a column, of all records or of one slice, from an hour on."""

    column: int
    part: str
    hour: int
    sigma: float


PARTS = ("a", "b", "c", "d")
NUMBERS = 15


class Service:
    """Profiles of hours as the worker stores them, and what its incidents say."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.rng = engine, np.random.default_rng(seed)
        self.model = f"m{seed}"
        self.book = IncidentBook(self.model, AlarmRule())
        self.layout = ProfileLayout.fit(self.records(3_000, 0, None)[0])
        self.spent: list[float] = []
        row = LayoutRow(self.layout.digest, 0, "", 3_000, self.layout.to_json())
        with write(engine) as connection:
            insert_layouts(connection, self.model, [row])

    def records(self, rows: int, hour: int, plant: Plant | None) -> list[Batch]:
        """Records of one hour by slice."""
        found = []
        for part in PARTS:
            columns: dict[str, NDArray[Any]] = {
                f"inputs.n{number}": self.rng.normal(size=rows) for number in range(NUMBERS)
            }
            for number in range(20 - NUMBERS):
                columns[f"inputs.c{number}"] = self.rng.choice(np.array(list("pqrst")), rows)
            if plant is not None and hour >= plant.hour and plant.part in ("", part):
                name = f"inputs.n{plant.column}"
                columns[name] = columns[name] + plant.sigma
            found.append(Batch.from_columns(columns, model=self.model))
        return found

    def hour(self, hour: int, plant: Plant | None) -> None:
        """Commit one hour."""
        start, digest = 500_000 * HOUR_US + hour * HOUR_US, self.layout.digest
        rows = [
            ProfileRow(3600, start, "champion", "1", part, hour, digest, batch.rows,
                       Profile.of(batch, self.layout).to_bytes())
            for part, batch in zip(PARTS, self.records(ROWS // len(PARTS), hour, plant), strict=True)
        ]  # fmt: skip
        with write(self.engine) as connection:
            insert_profiles(connection, self.model, rows)
            began = process_time()
            self.book.settle(connection, now_us=start + HOUR_US + 60_000_000)
            self.spent.append(process_time() - began)

    def first_ticket(self, plant: Plant, *, within: int) -> IncidentRow | None:
        """First ticket of a planted shift, or of none."""
        for hour in range(plant.hour + within):
            self.hour(hour, plant)
            if hour >= DAY:
                with self.engine.connect() as connection:
                    found = stored_incidents.list_incidents(connection, now_us=0, model=self.model)
                tickets = [row for row in found if row.kind == "drift"]
                if tickets:
                    return tickets[0]
        return None


def show_planted(plants: int, folder: Path) -> None:
    """Print how many shifts are found, with their cause first and the onset in its interval."""
    rng = np.random.default_rng(47)
    found, first, covered, delays, spent = 0, 0, 0, [], []
    engine = open_database(f"sqlite:///{folder / 'state.db'}")
    migrations.upgrade(engine)
    for seed in range(plants):
        part = str(rng.choice(["", *PARTS]))
        plant = Plant(
            int(rng.integers(NUMBERS)), part, int(rng.integers(27, 33)), float(rng.choice([0.5, 1.0, 1.5]))
        )
        service = Service(engine, seed)
        ticket = service.first_ticket(plant, within=30)
        spent += service.spent[DAY + 1 :]
        if ticket is None:
            continue
        found += 1
        onset = (500_000 + plant.hour) * HOUR_US
        delays.append((ticket.opened_us - onset) // HOUR_US)
        first += (ticket.assertion, ticket.slice) == (f"inputs.n{plant.column}", plant.part)
        told = ticket.details["onset"]
        covered += us_of(told["first"]) <= onset < us_of(told["last"])
    engine.dispose()
    data = f"{plants} shifts by 0.5 to 1.5 sigma of one of 20 columns, in all or one of 4 slices, 600 an hour"
    name = "monitoring.drift_tickets"
    Figure.of_share(f"{name}.found", found, plants, "shifts found within 30 h", data=data).show()
    Figure.of_share(
        f"{name}.first", first, plants, "column and slice ranked first", base=0.9, target=1.0, data=data
    ).show()
    Figure.of_share(
        f"{name}.onset", covered, found, "onsets in their interval", base=0.93, target=1.0, data=data
    ).show()
    Figure(f"{name}.delay", float(np.median(delays)), "hours, median", "none", 0.0, data=data).show()
    Figure(
        f"{name}.cost", float(np.median(spent)) * 1e6, "µs of CPU per window", "none", 0.0,
        data="an hour of 20 columns and 4 slices, read, decided, stored; other kinds of incidents included",
    ).show()  # fmt: skip


def main() -> None:
    """Print false tickets, planted shifts and the cost of a window."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--plants", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show_planted(options.plants, Path(folder))
    show_false_alarms(options.runs)


if __name__ == "__main__":
    main()
