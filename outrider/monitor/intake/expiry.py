"""Expiry of payloads where the journal is written, and of rows; `dataops.journal.expiry` decides."""

import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from outrider.dataops.journal import expiry, row_expiry
from outrider.dataops.journal.expiry import Around
from outrider.dataops.journal.journal import PAGE_BYTES, BlockInfo, SqliteJournal
from outrider.dataops.journal.stored_rows import pack_rows
from outrider.dataops.judges import PREFIX
from outrider.dataops.ledger.aging import RemovedModels
from outrider.dataops.state.clock import present_us
from outrider.dataops.state.database import now_us, open_database, write
from outrider.errors import JournalFull
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.process.clock import ServiceClock
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sections import PRESSURE_SHARE
from outrider.monitor.stream.kept_profiles import kept_profiles

from .row_expiry import RowExpirer

log = logging.getLogger(__name__)

EVERY_S = 10.0
DUTY = 4.0
"""Pause after each slice, as a multiple of its time: taking records comes first."""
SLICE_BLOCKS = 128
SLICE_ROWS = 50_000
KEEP_WHOLE_SHARE = 0.5
"""A block of which a larger share stays is not worth writing again."""
NO_MODEL = ""
LIVE_SLOT = "live.endpoint"


@dataclass(frozen=True, slots=True)
class Slice:
    model: str
    blocks: list[BlockInfo]


class Expirer:
    """Expirer of due payloads; ``reader`` is a second connection, so that looking holds up no commit."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        journal: SqliteJournal,
        reader: SqliteJournal,
        *,
        metrics: Metrics,
        clock: ServiceClock | None = None,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._engine = engine
        self._journal = journal
        self._reader = reader
        self._metrics = metrics
        storage = settings.storage
        self._around = Around(storage.keep_around_rows, storage.keep_around_s)
        self._through = reader.expired_through()
        self._rows = RowExpirer(storage, engine, reader, metrics)
        self._removed = RemovedModels(settings.models, engine, kept_profiles(storage))
        self._revisited: tuple[str, int, int] | None = None
        """Model, and the blocks after and up to which kept payloads are looked at again."""

    def run_until(self, stop: threading.Event) -> None:
        while not stop.wait(EVERY_S):
            try:
                self.run(stop)
            except (OperationalError, sqlite3.DatabaseError, JournalFull) as error:
                log.warning("payloads cannot expire right now: %s", error)
            except Exception:
                log.exception("payloads do not expire")

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            began = time.monotonic()
            if not self.step(now_us()):
                return
            stop.wait(DUTY * (time.monotonic() - began))

    def step(self, now_us: int) -> bool:
        """Expire one slice; False if none was due."""
        chosen = self._next(now_us)
        if chosen is None:
            return self._step_rows(now_us)
        last = chosen.blocks[-1]
        if chosen.model:
            with write(self._engine) as connection:
                ages = ((block.seq, block.received_us) for block in chosen.blocks)
                row_expiry.note_ages(connection, chosen.model, ages)
        through = {chosen.model: last.seq}
        self._expire(chosen, through)
        self._through |= through
        return True

    def _step_rows(self, now_us: int) -> bool:
        """Expire rows of a slice, then payloads kept for such; not within an hour of a step of the clock."""
        if self._clock is not None and not self._clock.is_steady():
            return False
        if self._revisited is None:
            if self._rows.step(self._through, now_us):
                return True
            if not self._rows.ended:
                self._removed.step(now_us)
                return False
            model, until = self._rows.ended.pop()
            self._revisited = model, 0, until
        model, after, until = self._revisited
        blocks = self._reader.outline(model, after=after, until=until, limit=SLICE_BLOCKS, rows=SLICE_ROWS)
        self._revisited = (model, blocks[-1].seq, until) if blocks else None
        if blocks:
            self._expire(Slice(model, blocks), {})
        return True

    def _expire(self, chosen: Slice, through: Mapping[str, int]) -> None:
        keeps = self._keeps(chosen)
        dead, packed, gone = [], {}, 0
        for block in chosen.blocks:
            rows = keeps.get(block.seq)
            if block.kind == "step":
                continue  # what is left before it is of another clock for ever
            if rows is None:
                dead.append(block.seq)
                gone += block.rows if block.kind == "records" else 0
            elif len(rows) <= KEEP_WHOLE_SHARE * block.rows and (small := self._packed(block, rows)):
                packed[block.seq] = len(rows), small
                gone += block.rows - len(rows)
        if chosen.model:
            with write(self._engine) as connection:
                # First: answers without their block would never be found again.
                expiry.forget_answers(connection, chosen.model, dead)
        self._journal.expire(dead, kept=packed, through=through)
        if chosen.model:
            self._metrics.counter("outrider_payloads_expired_total").labels(model=chosen.model).inc(gone)

    def _next(self, now_us: int | None) -> Slice | None:
        """The oldest due blocks that no one needs.

        Ages are those of today's clock (`present_us`); under pressure room is made in the order of the
        journal, whatever the clock.
        """
        if self._clock is not None and not self._clock.is_steady():
            now_us = None
        storage = self._settings.storage
        excess = self._reader.used_bytes() - PRESSURE_SHARE * storage.journal_max_bytes
        if now_us is None and excess <= 0:
            return None
        steps = self._reader.steps()

        def is_due(block: BlockInfo) -> bool:
            if excess > 0 or now_us is None:
                return True
            born_us = int(now_us - storage.keep_days * 86_400e6)
            return present_us(steps, block.seq, block.received_us) < born_us

        free = self._free()
        slices = []
        for model, until in free.items():
            after = self._through.get(model, 0)
            blocks = self._reader.outline(
                model, after=after, until=until, limit=SLICE_BLOCKS, rows=SLICE_ROWS
            )
            due = [block for block in blocks if is_due(block)]
            if excess > 0:
                due = _enough(due, excess)
            if due:
                slices.append(Slice(model, due))
            elif not blocks:
                self._through[model] = max(after, until)
        return min(slices, key=lambda one: one.blocks[0].seq, default=None)

    def _free(self) -> dict[str, int]:
        """Last block that may go by model; ticks may go once all models have passed them."""
        free: dict[str, int] = {}
        passed = []
        # Models that were configured once too: what was judged of them is as old as the rest.
        names = {*self._settings.models, *(seen.model for seen in self._reader.schemas())}
        with self._engine.connect() as connection:
            for name in sorted(names):
                until = expiry.needed_from(connection, name, slots=self._slots(name))
                if name in self._settings.models:
                    passed.append(until)
                free[name] = expiry.judged_neighbours(connection, name, until, self._around)
        return free | {NO_MODEL: min(passed, default=0)}

    def _slots(self, model: str) -> set[str]:
        """Cursor roles of a model that the configuration makes."""
        own = self._settings.models.get(model)
        if own is None:
            return set()
        judges = {f"{PREFIX}{judge}" for judge in own.judges}
        return judges | ({LIVE_SLOT} if own.live.endpoint is not None else set())

    def _keeps(self, chosen: Slice) -> dict[int, NDArray[np.intp]]:
        if not chosen.model:
            return {}
        with self._engine.connect() as connection:
            return expiry.kept_rows(connection, chosen.model, chosen.blocks, self._around)

    def _packed(self, block: BlockInfo, rows: NDArray[np.intp]) -> bytes | None:
        """The block with these rows alone; None: it cannot be read and stays as it is."""
        try:
            return pack_rows(self._reader.get(block.seq).payload, rows)
        except (KeyError, ValueError, OSError, pa.ArrowException) as error:
            log.warning("block %d stays whole, it cannot be read: %s", block.seq, error)
            return None


def _enough(blocks: list[BlockInfo], excess: float) -> list[BlockInfo]:
    """The first blocks that hold so many bytes together."""
    for at, block in enumerate(blocks):
        excess -= -(-block.bytes // PAGE_BYTES) * PAGE_BYTES
        if excess <= 0:
            return blocks[: at + 1]
    return blocks


def start_expiry(
    settings: Settings, journal: SqliteJournal, metrics: Metrics, stop: threading.Event, clock: ServiceClock
) -> threading.Thread:
    engine = open_database(settings.database_url)
    reader = SqliteJournal(settings.journal_path, read_only=True)
    expirer = Expirer(settings, engine, journal, reader, metrics=metrics, clock=clock)

    def run() -> None:
        try:
            expirer.run_until(stop)
        finally:
            reader.close()
            engine.dispose()

    thread = threading.Thread(target=run, name="expiry", daemon=True)
    thread.start()
    return thread
