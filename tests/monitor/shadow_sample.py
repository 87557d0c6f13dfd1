"""A champion and challengers that have answered a stream: an equal one, a worse one, a smaller right one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, Engine

from outrider.assertions import Batch
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.monitor.engine.asks import again_of
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ChallengerSettings, ModelSettings, ShadowSettings
from outrider.monitor.trainer.context import JobContext
from tests.databases import migrated
from tests.model_sources import section_source
from tests.monitor.web.sample import add

MODEL = "digits"
START_US = 1_790_000_000_000_000
CAMERAS = ("till-1", "till-2", "<i>till-3")
Floats = np.ndarray[Any, Any]


@dataclass(slots=True)
class Stream:
    """Stores, and a source of blocks.

    ``wrong`` says for each challenger how often it moves to another class; twice as often on the
    third camera.
    """

    engine: Engine
    journal: SqliteJournal
    objects: LocalObjects
    settings: Settings
    wrong: Mapping[str, float]
    again: float
    rng: np.random.Generator
    fed: int = 0

    @property
    def context(self) -> JobContext:
        """What the trainer works with."""
        return JobContext(self.settings, self.engine, self.objects, self.journal)

    def feed(self, blocks: int, *, rows: int = 50) -> None:
        """Blocks that all have answered and been judged on."""
        for _ in range(blocks):
            self._block(rows)

    def _block(self, rows: int) -> None:
        rng = self.rng
        truth = rng.integers(10, size=rows)
        logits = rng.normal(0, 1, (rows, 10))
        logits[np.arange(rows), truth] += 6.0
        close = np.flatnonzero(rng.random(rows) < 0.005)
        best = np.sort(logits[close], axis=1)
        logits[close, logits[close].argmax(1)] = best[:, -2]  # a tie, which rounding decides
        cameras = [CAMERAS[k] for k in rng.integers(3, size=rows)]
        ids = [f"r{self.fed + k:06}" for k in range(rows)]
        inputs = Batch.from_records(
            [
                {"id": i, "inputs": {"n": self.fed + k}, "attrs": {"device": camera}}
                for k, (i, camera) in enumerate(zip(ids, cameras, strict=True))
            ],
            model=MODEL,
        )
        at = START_US + self.fed * 10_000
        seq = self.journal.append([Entry("records", MODEL, rows, inputs.to_ipc())], at)[0]
        self.fed += rows
        with write(self.engine) as connection:
            said = _answer(ids, logits, rng)
            add(connection, tables.Answer, model=MODEL, version="1", seq=seq, payload=said.to_ipc())
            records = [
                {
                    "model": MODEL, "id": key, "seq": seq, "row": row, "ts_us": at, "digest": 0,
                    "version": "1", "slice": cameras[row], "weight": 1.0,
                    "predicted": str(said.column("outputs.label")[row]),
                }
                for row, key in enumerate(ids)
            ]  # fmt: skip
            labels = [
                {
                    "seq": seq + 100_000, "row": row, "model": MODEL, "record_id": ids[row], "label": {},
                    "source": "human", "value": str(truth[row]), "ts_us": at, "received_us": at,
                }
                for row in range(0, rows, 10)
            ]  # fmt: skip
            connection.execute(tables.table_of(tables.Record).insert(), records)
            connection.execute(tables.table_of(improvement_tables.Label).insert(), labels)
            asked = np.flatnonzero(rng.random(rows) < self.again)
            self._add_again(connection, "1", seq, ids, logits, asked)
            for version, wrong in self.wrong.items():
                moved = logits.copy()
                odds = np.where(np.array(cameras) == "<i>till-3", 2 * wrong, wrong)
                far = np.flatnonzero(rng.random(rows) < odds)
                moved[far, (truth[far] + 1) % 10] += 12.0
                answer = _answer(ids, moved, rng)
                add(connection, tables.Answer, model=MODEL, version=version, seq=seq, payload=answer.to_ipc())
                self._add_again(connection, version, seq, ids, moved, asked)
                for row in far.tolist():
                    add(
                        connection, tables.Flag, id=f"{version}-{seq}-{row}", model=MODEL, seq=seq, row=row,
                        record_id=ids[row], assertion="margin_is_wide", revision="1", slot=version,
                        severity=1.0, level="warning", ts_us=at,
                    )  # fmt: skip
            cursor = tables.table_of(tables.Cursor)
            connection.execute(cursor.update().values(seq=seq))

    def _add_again(
        self, connection: Connection, version: str, seq: int, ids: list[str], logits: Floats, asked: Floats
    ) -> None:
        if len(asked):
            twice = _answer([ids[row] for row in asked], logits[asked], self.rng).to_ipc()
            add(connection, tables.Answer, model=MODEL, version=again_of(version), seq=seq, payload=twice)


def _answer(ids: list[str], logits: Floats, rng: np.random.Generator) -> Batch:
    noisy = logits + rng.normal(0, 1e-5, logits.shape)
    probs = np.exp(noisy - noisy.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    columns = {
        "id": ids, "outputs.label": probs.argmax(1), "outputs.score": probs.max(1), "outputs.probs": probs
    }  # fmt: skip
    return Batch.from_columns(columns, model=MODEL, rows=len(ids))


def open_stream(
    folder: Path,
    *,
    wrong: Mapping[str, float],
    again: float = 0.3,
    limits: Callable[[str], Mapping[str, Any]] = lambda _: {},
    shadow: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Stream:
    """A champion "1" and challengers that have answered nothing yet; ``limits`` ends their tests."""
    journal = SqliteJournal(folder / "journal.db", max_bytes=None)
    engine = migrated(folder / "state.db")
    objects = LocalObjects(folder / "objects")
    challengers = {
        version: ChallengerSettings.model_validate({"predictor": "m.py:f"} | dict(limits(version)))
        for version in wrong
    }
    model = ModelSettings(
        predictor="m.py:f",
        slice_by="device",
        challengers=challengers,
        shadow=ShadowSettings.model_validate(dict(shadow or {})),
    )
    settings = Settings(base=folder, models={MODEL: model})
    sizes = {"1": 4000, **dict.fromkeys(wrong, 4000), "half": 1000}
    with write(engine) as connection:
        for version, status in {"1": "champion", **dict.fromkeys(wrong, "challenger")}.items():
            digest = objects.put((version.encode() * sizes[version])[: sizes[version]])
            add(
                connection, improvement_tables.ModelVersion, model=MODEL, version=version, status=status,
                digest=digest, weights=digest, created_us=START_US, changed_us=START_US, note="",
                source=section_source(settings, MODEL),
            )  # fmt: skip
            slot = "champion" if status == "champion" else version
            add(connection, tables.Cursor, model=MODEL, slot=slot, seq=0)
    return Stream(engine, journal, objects, settings, dict(wrong), again, np.random.default_rng(seed))
