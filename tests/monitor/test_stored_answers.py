"""Stored answers of several blocks are one answer, though a block of nulls has no type."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.dataops.state.database import write
from outrider.dataops.state.rows import insert_rows
from outrider.dataops.state.tables import Answer
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sections import StorageSettings
from outrider.monitor.stream.stored_answers import stored
from outrider.monitor.stream.units import Unit
from tests.databases import migrated_for


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    settings = Settings(base=tmp_path, storage=StorageSettings(folder="data"))
    made = migrated_for(settings)
    yield made
    made.dispose()


def read_back(engine: Engine, *blocks: dict[str, Any]) -> Batch | None:
    keys = [f"r{at}" for at in range(len(blocks))]
    records = Batch.from_columns({"id": keys, "inputs.x": np.zeros(len(keys))}, model="m")
    rows = [
        ("m", "2", at + 1, records.slice(at, 1).with_outputs(outputs).to_ipc())
        for at, outputs in enumerate(blocks)
    ]
    with write(engine) as connection:
        insert_rows(connection, Answer, rows)
    numbers = np.arange(1, len(keys) + 1)
    unit = Unit("m", 1, len(keys), 0, batch=records, seq=numbers, row=np.zeros(len(keys), dtype=np.int64))
    return stored(engine, "2", unit, records)


def test_blocks_of_nulls_and_of_empty_lists_join_the_others(engine: Engine) -> None:
    entity = {"start": 0, "end": 3, "label": "PER", "score": 1.0}
    found = read_back(
        engine,
        {"label": [None], "entities": [[]]},
        {"label": ["spam"], "entities": [[entity]]},
        {"label": [None], "entities": [[]]},
    )
    assert found is not None
    assert found.column("outputs.label").tolist() == [None, "spam", None]
    assert found.arrow("outputs.entities").to_pylist() == [[], [entity], []]


def test_answers_of_types_that_do_not_fit_are_none(engine: Engine) -> None:
    assert read_back(engine, {"label": ["spam"]}, {"label": [1]}) is None


def test_answers_with_other_outputs_are_none(engine: Engine) -> None:
    assert read_back(engine, {"label": ["spam"]}, {"label": ["spam"], "score": [0.5]}) is None
