"""A worker over a real journal, database and assertion host, without the processes around it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, text

from outrider.assertions import Batch
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import open_database, write
from outrider.monitor.engine.groups import EngineGroups
from outrider.monitor.engine.metrics import EngineMetrics
from outrider.monitor.host.client import HostClient
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.migrate import migrate
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.worker.metrics import WorkerMetrics
from outrider.monitor.worker.objectives import Objectives
from outrider.monitor.worker.process import Worker
from tests.databases import place_database
from tests.forked import LightPopen
from tests.soak import PATIENCE_S

from .engine_threads import EngineThreads

START_US = 1_790_000_000_000_000


class Workbench:
    """Feeds blocks and steps the worker by hand."""

    def __init__(
        self,
        config: Path,
        *,
        deadline_s: float = 5.0,
        objectives: Callable[["Workbench"], Objectives] | None = None,
        has_processes: bool = False,
    ) -> None:
        self.config = config
        self._objectives = objectives
        self._groups: type[EngineGroups] = EngineGroups if has_processes else EngineThreads
        self.engines: EngineGroups | None = None
        self.settings: Settings = load_settings(config)
        self.settings.data_folder.mkdir(exist_ok=True)
        place_database(self.settings.data_folder / "state.db")
        migrate(self.settings)
        self.journal = SqliteJournal(self.settings.journal_path, max_bytes=None)
        self.engine: Engine = open_database(self.settings.database_url, journal_uuid=self.journal.uuid)
        self.deadline_s = deadline_s
        self.registry = CollectorRegistry()
        self.now_us = START_US
        self.host: HostClient | None = None
        self.worker = self.restart()

    def restart(self) -> Worker:
        """A fresh worker and host on the same stores, as after a crash."""
        self._stop_processes()
        self.host = HostClient(self.config, deadline_s=self.deadline_s, popen=LightPopen)
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, models=tuple(self.settings.models))
        objectives = None if self._objectives is None else self._objectives(self)
        objects = LocalObjects(self.settings.data_folder / "objects")
        self.engines = self._groups(self.settings, self.engine, objects, EngineMetrics(metrics))
        self.worker = Worker(
            self.settings, self.engine, self.journal, self.host, self.engines,
            metrics=WorkerMetrics(metrics), objectives=objectives,
        )  # fmt: skip
        self.worker.start()
        return self.worker

    def close(self) -> None:
        """Stop the processes and release the files."""
        self._stop_processes()
        self.engine.dispose()
        self.journal.close()

    def _stop_processes(self) -> None:
        if self.host is not None:
            self.host.stop()
        if self.engines is not None:
            self.engines.stop()

    def feed(self, records: Sequence[Mapping[str, Any]], *, after_s: float = 0.1, model: str = "toy") -> int:
        """Append one block of records; returns its number."""
        self.now_us += int(after_s * 1e6)
        batch = Batch.from_records(records, model=model)
        received = pa.repeat(pa.scalar(self.now_us, pa.timestamp("us", tz="UTC")), batch.rows)
        batch = batch.with_columns({"received": received, "ts": received})
        entry = Entry(kind="records", model=model, rows=batch.rows, payload=batch.to_ipc())
        return self.journal.append([entry], self.now_us)[0]

    def label(self, labels: Mapping[str, Any], *, source: str = "human") -> int:
        """Append one block of labels by record id."""
        self.now_us += 100_000
        table = pa.table(
            {
                "id": list(labels),
                "ts": pa.repeat(pa.scalar(self.now_us, pa.timestamp("us", tz="UTC")), len(labels)),
                "source": [source] * len(labels),
                "label.label": list(labels.values()),
            }
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        entry = Entry(kind="labels", model="toy", rows=len(labels), payload=sink.getvalue().to_pybytes())
        return self.journal.append([entry], self.now_us)[0]

    def work(self, timeout_s: float = PATIENCE_S) -> None:
        """Step until nothing is left."""
        deadline = time.monotonic() + timeout_s
        while self.worker.step():
            assert time.monotonic() < deadline

    def work_until(self, is_done: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Step until something has come about, which engines in processes of their own may take time for."""
        deadline = time.monotonic() + timeout_s
        while not is_done():
            assert time.monotonic() < deadline
            if not self.worker.step():
                self.worker.engines.wait(0.01)

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Query the database."""
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(sql), values)]

    def execute(self, sql: str, **values: Any) -> None:
        """Change the database."""
        with write(self.engine) as connection:
            connection.execute(text(sql), values)

    def count(self, name: str, slot: str = "champion") -> int:
        """Value of an exact counter."""
        found = self.rows(
            "SELECT value FROM counter WHERE slot = :slot AND name = :name", slot=slot, name=name
        )
        return int(found[0][0]) if found else 0

    def flags(self, assertion: str, slot: str = "champion") -> set[str]:
        """Record ids an assertion fired on."""
        sql = "SELECT record_id FROM flag WHERE assertion = :a AND slot = :s"
        return {row[0] for row in self.rows(sql, a=assertion, s=slot)}


@contextmanager
def workbench(
    config: Path,
    *,
    deadline_s: float = 5.0,
    objectives: Callable[[Workbench], Objectives] | None = None,
    has_processes: bool = False,
) -> Iterator[Workbench]:
    """Workbench that is closed at the end; ``has_processes`` runs models in processes, which may die."""
    bench = Workbench(config, deadline_s=deadline_s, objectives=objectives, has_processes=has_processes)
    try:
        yield bench
    finally:
        bench.close()
