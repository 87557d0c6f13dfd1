"""A project whose retraining jobs run here, from flagged and labelled records to versions that answer."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from sqlalchemy import Engine, insert, text

from outrider.assertions import Batch
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.model_kinds.loading import load_model
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.monitor.http.common import targets_of
from outrider.monitor.registry.predictors import version_predictors
from outrider.monitor.registry.registration import Registration
from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.sources import loadable_source
from outrider.monitor.trainer.context import JobContext
from tests.databases import migrated_for
from tests.running_jobs import run_next


class World:
    """A project whose trainer is called by hand."""

    def __init__(self, folder: Path, model: str, journal: SqliteJournal, engine: Engine) -> None:
        self.model = model  # which jobs and records are of
        self.settings = load_settings(folder / "outrider.toml")
        self.objects = LocalObjects(self.settings.data_folder / "objects")
        self.context = JobContext(
            self.settings, engine, self.objects, journal, targets_of(self.settings), poll_s=0.01
        )
        Registration(self.settings, engine, self.objects).update()
        self._journal, self._engine = journal, engine

    def flag(self, batch: Batch, labels: Sequence[str]) -> None:
        """Records as the worker leaves them: journalled, registered, flagged, labelled."""
        batch = Batch.from_columns(
            {
                name: batch.arrow(name)
                for name in batch.names
                if name.startswith(("id", "inputs.", "outputs."))
            },
            model=self.model,
        )
        (seq,) = self._journal.append([Entry("records", self.model, batch.rows, batch.to_ipc())], 1)
        at: dict[str, Any] = {"model": self.model, "seq": seq, "ts_us": 0}
        flag = {"assertion": "odd", "revision": "1", "slot": "champion", "severity": 1.0, "level": "warning"}
        told = {"model": self.model, "seq": seq + 1, "source": "human", "ts_us": 0, "received_us": 0}
        rows = [(row, str(key)) for row, key in enumerate(batch.keys)]
        target = self.settings.models[self.model].target
        with write(self._engine) as connection:
            record, label = tables.Record, improvement_tables.Label
            connection.execute(insert(record), [{**at, "id": k, "row": row, "digest": 0} for row, k in rows])
            connection.execute(
                insert(tables.Flag),
                [{**at, **flag, "id": f"{self.model} {k}", "record_id": k, "row": row} for row, k in rows],
            )
            said = [{**told, "row": row, "record_id": k, "label": {target: labels[row]}} for row, k in rows]
            connection.execute(insert(label), [{**one, "value": labels[row]} for row, one in enumerate(said)])
            cursor = "INSERT OR REPLACE INTO cursor VALUES (:model, 'champion', :seq)"
            connection.execute(text(cursor), {"model": self.model, "seq": seq + 1})

    def bring(self, name: str, batch: Batch) -> None:
        """Import a dataset of labelled rows, as the API does."""
        sink = pa.BufferOutputStream()
        table = pa.Table.from_batches([batch.to_arrow()])
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        params = {"dataset": name, "object": self.objects.put(sink.getvalue().to_pybytes())}
        with write(self._engine) as connection:
            jobs.add(connection, model=self.model, kind="dataset", params=params, now_us=1)
        job = run_next(self.context)
        assert job is not None
        assert job.status == "done", job.result

    def retrain(self, **params: object) -> JobRow:
        """Run one job to its end."""
        with write(self._engine) as connection:
            jobs.add(connection, model=self.model, kind="retrain", params=params, now_us=1)
        job = run_next(self.context)
        assert job is not None
        return job

    def version(self, version: str) -> models.Model:
        with self._engine.connect() as connection:
            return models.get(connection, self.model, version)

    def loaded(self, version: str) -> Any:
        """A version as an engine loads one."""
        found = self.version(version)
        source = loadable_source(self.settings, found)
        weights = None if found.weights is None else self.objects.path(found.weights)
        return load_model(source, folder=self.settings.base, weights=weights)

    def answers(self, version: str, batch: Batch) -> Any:
        with self._engine.connect() as connection:
            (predictor,) = version_predictors(self.settings, connection, self.model, version)
        return predictor(batch)

    def roll_back(self) -> None:
        with write(self._engine) as connection:
            models.rollback(connection, self.model, now_us=9, reason="by hand", by="ann")


@contextlib.contextmanager
def world(folder: Path, config: str, model: str = "reviews") -> Iterator[World]:
    """A fresh project of one configuration, about one of its models."""
    torch.set_num_threads(1)
    (folder / "outrider.toml").write_text(config)
    settings = load_settings(folder / "outrider.toml")
    settings.data_folder.mkdir()
    engine = migrated_for(settings)
    journal = SqliteJournal(settings.journal_path, max_bytes=None)
    try:
        yield World(folder, model, journal, engine)
    finally:
        journal.close()
        engine.dispose()
