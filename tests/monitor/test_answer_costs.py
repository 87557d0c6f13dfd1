"""What an answer costs is the time of the passes that it took part in, and is kept per version."""

from collections import Counter as Tally
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from outrider.assertions import Batch
from outrider.dataops.improvement import shadow_tests
from outrider.dataops.ledger.counters import add_counts
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.dataops.state.database import write
from outrider.monitor.engine.asks import Ask, AskAnswer, again_of
from outrider.monitor.engine.device import CpuDevice
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import LoadedVersion
from outrider.monitor.engine.frames import AnswerReader, AnswerWriter
from outrider.monitor.stream.answer_costs import note_cost, read_costs
from outrider.monitor.trainer.shadow_tests import ShadowTests
from outrider.monitor.views.agreement.reader import report_json
from outrider.monitor.worker.inference import InferenceRequest, Predictions
from tests.end_to_end.service import write_project
from tests.monitor.shadow_sample import MODEL, open_stream
from tests.monitor.workbench import workbench


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


def test_costs_are_read_back_by_version_with_quantiles_over_records(tmp_path: Path) -> None:
    made = open_stream(tmp_path, wrong={"fast": 0.0})
    counts: dict[str, Tally[str]] = {"champion": Tally(), "fast": Tally()}
    for _ in range(99):
        note_cost(counts["champion"], "1", 0.010, 100)
        note_cost(counts["fast"], "fast", 0.002, 100)
    note_cost(counts["champion"], "1", 1.0, 101)
    note_cost(counts["fast"], "fast", 0.0, 100)  # nothing was measured
    counts["judge.second"] = Tally({"answered": 7})  # a judge's questions, of which no time is known
    with write(made.engine) as connection:
        for slot, each in counts.items():
            add_counts(connection, MODEL, slot, each)
        found = read_costs(connection, MODEL)
    assert found["1"].p50_us == pytest.approx(100, rel=0.1)
    assert found["1"].p99_us == pytest.approx(9901, rel=0.1)
    assert found["fast"].p99_us == found["fast"].p50_us == pytest.approx(20, rel=0.1)
    assert found["1"].answered == 10_001
    assert set(found) == {"1", "fast"}
    made.engine.dispose()
    made.journal.close()


def test_times_of_champions_do_not_mix(tmp_path: Path) -> None:
    """The slot of the champion goes on when another version holds it; what it answered with, does not."""
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([{"id": f"r{at}", "inputs": {"x": 0.3}} for at in range(5)])
        bench.work()
        bench.execute(
            "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us, note)"
            " SELECT model, '2', 'champion', digest, source, created_us, changed_us, '' FROM model_version"
        )
        bench.execute("UPDATE model_version SET status = 'retired' WHERE version = '1'")
        bench.worker._refresh(force=True)
        bench.feed([{"id": f"r{at}", "inputs": {"x": 0.3}} for at in range(5, 8)])
        bench.work()
        with bench.engine.connect() as connection:
            found = read_costs(connection, "toy")
    assert {version: cost.answered for version, cost in found.items()} == {"1": 5, "2": 3}


def test_a_test_beside_a_new_champion_shows_its_times_alone(tmp_path: Path) -> None:
    made = open_stream(tmp_path, wrong={"next": 0.0, "other": 0.0})
    made.feed(2)
    watch = ShadowTests(made.context)
    watch.look()

    def answered(version: str, seconds: float) -> None:
        counts: Tally[str] = Tally()
        note_cost(counts, version, seconds, 100)
        with write(made.engine) as connection:
            add_counts(connection, MODEL, "champion", counts)

    answered("1", 0.010)
    with write(made.engine) as connection:
        connection.execute(text("UPDATE model_version SET status = 'retired' WHERE version = '1'"))
        connection.execute(text("UPDATE model_version SET status = 'champion' WHERE version = 'next'"))
    answered("next", 0.001)
    watch.look()
    made.feed(2)
    watch.look()
    with made.engine.connect() as connection:
        [trial] = shadow_tests.running(connection)
        versions = report_json(made.engine, MODEL, now_us=0)["versions"]
    assert (trial.champion, trial.version) == ("next", "other")
    assert trial.findings["cost"]["champion"]["mean_us"] == 10.0
    assert {each["version"]: each["cost_us"] for each in versions} == {
        "1": pytest.approx(100, rel=0.1), "next": pytest.approx(10, rel=0.1), "other": None
    }  # fmt: skip
    made.engine.dispose()
    made.journal.close()
