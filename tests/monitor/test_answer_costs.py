"""What an answer costs is the time of the passes that it took part in, and is kept per slot."""

from collections import Counter as Tally
from pathlib import Path

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.dataops.state import tables
from outrider.dataops.state.database import write
from outrider.monitor.engine.asks import Ask, AskAnswer, again_of
from outrider.monitor.engine.device import CpuDevice
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import LoadedVersion
from outrider.monitor.engine.frames import AnswerReader, AnswerWriter
from outrider.monitor.stream.answer_costs import note_cost, read_costs
from outrider.monitor.worker.inference import InferenceRequest, Predictions
from tests.monitor.shadow_sample import MODEL, open_stream


def records(rows: int) -> Batch:
    return Batch.from_columns({"inputs.x": np.arange(float(rows))}, model="m", rows=rows)


def test_time_of_passes_is_shared_by_the_records_that_ran_together() -> None:
    import torch

    device = CpuDevice()
    engine = Engine(device, batch_rows=8)
    for version in ("1", "2"):
        runner = TorchRunner(torch.nn.Linear(1, 2), inputs=["x"], classes=[0, 1])
        engine.add(LoadedVersion(("m", version), Source("torch", "m.py:f"), runner))
    engine.submit(Ask(1, "m", ("1", "2"), records(20), again=(0, 5, 6)))
    found: dict[str, AskAnswer] = {}
    while engine.waiting:
        found |= {answer.version: answer for answer in engine.step()}
    assert set(found) == {"1", "2", again_of("1"), again_of("2")}
    assert all(answer.seconds > 0 for answer in found.values())
    for version in ("1", "2"):  # whether or not both were in a pass
        assert found[version].seconds + found[again_of(version)].seconds <= device.busy_s * (1 + 1e-9)


def test_a_frame_carries_it_and_rows_keep_their_part() -> None:
    answer = AskAnswer(1, "1", {"value": np.arange(4.0)}, seconds=0.5)
    header, buffers = AnswerWriter().answer(answer)
    read = AnswerReader().answer(header, [memoryview(buffer) for buffer in buffers])
    assert read.seconds == 0.5
    flight = InferenceRequest(1, ("1",), again=(), answers={"1": read})
    assert Predictions.of(flight, "1").take(np.array([0, 2])).seconds == pytest.approx(0.25)


def test_costs_are_read_back_by_slot_with_quantiles_over_records(tmp_path: Path) -> None:
    made = open_stream(tmp_path, wrong={"fast": 0.0})
    counts: dict[str, Tally[str]] = {"champion": Tally(), "fast": Tally()}
    for _ in range(99):
        note_cost(counts["champion"], 0.010, 100)
        note_cost(counts["fast"], 0.002, 100)
    note_cost(counts["champion"], 1.0, 101)
    note_cost(counts["fast"], 0.0, 100)  # nothing was measured
    counts["judge.second"] = Tally({"answered": 7})  # a judge's questions, of which no time is known
    with write(made.engine) as connection:
        rows = [
            {"model": MODEL, "slot": slot, "name": name, "value": value}
            for slot, each in counts.items()
            for name, value in each.items()
        ]
        connection.execute(tables.table_of(tables.Counter).insert(), rows)
        found = read_costs(connection, MODEL)
    assert found["champion"].p50_us == pytest.approx(100, rel=0.1)
    assert found["champion"].p99_us == pytest.approx(9901, rel=0.1)
    assert found["fast"].p99_us == found["fast"].p50_us == pytest.approx(20, rel=0.1)
    assert found["champion"].answered == 10_001
    assert set(found) == {"champion", "fast"}
    made.engine.dispose()
    made.journal.close()
