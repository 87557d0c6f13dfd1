"""Live tests of a model that only production has: asked behind the stream, and never unless it is named."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests.asking.limits import FAILURES, Breaker
from outrider.behavioral_tests.asking.records import endpoint
from outrider.errors import ConfigError, ServerError
from outrider.monitor.settings.config import load_settings
from tests.end_to_end.service import write_project
from tests.model_server import model_server
from tests.soak import PATIENCE_S

from .workbench import Workbench, workbench

CONFIG = """
[models.toy]
target = "label"
classes = [0, 1]
assertions = ["checks.py"]
behavior = ["test_toy.py"]
"""
LIVE = '\n[models.toy.live]\nendpoint = "URL"\nrows_per_s = 20\nkey_env = "TOY_KEY"\ndeadline_s = 0.5\n'
TESTS = """
from outrider.behavioral_tests import INV


def nudge(batch, rng):
    return batch.with_columns({"inputs.x": batch.column("inputs.x") + 0.05})


test_nudge = INV(perturb=nudge, live=0.5, tolerance=0.05)
test_half = INV(perturb=nudge, live_rows_per_s=10, tolerance=0.05)
"""


def predict(instances: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"label": int(one["x"] > 0.5), "score": 0.9} for one in instances]


def project(folder: Path, url: str | None) -> Path:
    path = write_project(folder, config=CONFIG + (LIVE.replace("URL", url) if url else ""))
    (folder / "test_toy.py").write_text(TESTS, encoding="utf-8")
    return path


def patient(folder: Path, url: str) -> Path:
    """The project, whose endpoint may take as long as it likes."""
    path = project(folder, url)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("deadline_s = 0.5", f"deadline_s = {PATIENCE_S}"), encoding="utf-8")
    return path


def records(rows: int, seed: int = 0, **more: Any) -> list[dict[str, Any]]:
    x = np.random.default_rng(seed).uniform(0.4, 0.49, rows).round(6).tolist()
    return [
        {
            "id": f"r{seed}-{n}",
            "inputs": {"x": value},
            "outputs": {"label": int(value > 0.5), "score": 0.9},
            "version": "7",
        }
        | more
        for n, value in enumerate(x)
    ]


def settle(bench: Workbench, timeout_s: float = PATIENCE_S) -> None:
    """Work until the slot of the endpoint is at the champion's cursor."""
    deadline = time.monotonic() + timeout_s
    cursors = bench.worker.context.cursors
    while cursors["toy", "live.endpoint"] < cursors["toy", "champion"] or bench.worker.step():
        bench.worker.step()
        time.sleep(0.005)
        assert time.monotonic() < deadline


def outcomes(bench: Workbench) -> dict[str, int]:
    return dict(bench.rows("SELECT status, count(*) FROM live_answer GROUP BY 1"))


def test_without_an_endpoint_in_the_configuration_production_is_never_asked(tmp_path: Path) -> None:
    with model_server(predict) as server, workbench(project(tmp_path, None)) as bench:
        bench.feed(records(50))
        bench.work()
        assert server.requests == 0
        assert outcomes(bench) == {}
        assert bench.count("records") == 50


def test_the_endpoint_is_asked_within_its_rate_and_judged_against_what_production_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_KEY", "s3cret")
    with model_server(predict) as server, workbench(patient(tmp_path, server.url)) as bench:
        for number in range(20):
            bench.feed(records(100, seed=number), after_s=1.0)
        settle(bench)
        found = outcomes(bench)
        assert found.keys() == {"passed", "failed"}
        assert len(server.instances) == sum(found.values()) <= 20 * (20 + 10) * 1.2
        assert sum(found.values()) >= 0.8 * 20 * 20
        assert set(server.keys) == {"Bearer s3cret"}
        x = [one["x"] for one in server.instances]
        assert found["failed"] == sum(value > 0.5 for value in x)
        rates = bench.rows("SELECT version, asked, failed, alarm_us IS NOT NULL FROM live_rate ORDER BY test")
        assert [row[0] for row in rates] == ["7", "7"]  # the version that production said
        assert sum(row[1] for row in rates) == len(x)
        assert all(row[3] for row in rates)
        assert bench.rows("SELECT DISTINCT kind FROM incident") == [("live_test",)]
        assert bench.rows("SELECT DISTINCT slot, version FROM flag") == [("champion", "7")]
        assert bench.count("live:test_nudge:failed") > 0
        up = bench.registry.get_sample_value("outrider_live_endpoint_up", {"model": "toy"})
        assert up == 1


def test_a_restart_asks_the_same_questions_with_the_same_odds(tmp_path: Path) -> None:
    seen = []
    for case in range(2):
        with model_server(predict) as server, workbench(patient(tmp_path / str(case), server.url)) as bench:
            for number in range(12):
                bench.feed(records(40 + 20 * (number % 3), seed=number), after_s=0.4)
                if case == 1 and number in (0, 6):
                    bench.worker.step()  # a question may be under way
                    bench.restart()
            settle(bench)
            seen.append(
                [
                    bench.rows("SELECT * FROM live_answer ORDER BY test, record_id"),
                    bench.rows(
                        "SELECT test, asked, failed, rate, low, high, state FROM live_rate ORDER BY 1"
                    ),
                    bench.rows("SELECT id FROM flag ORDER BY id"),
                ]
            )
    assert seen[0] == seen[1]
    assert len({row[-1] for row in seen[0][0]}) > 2


NONSENSE: dict[str, Any] = {
    "down": 503,
    "moved": 302,
    "html": b"<html>not json</html>",
    "too few": b'{"predictions": []}',
    "nested": b"[" * 100_000,
    "objects": [{"label": {"deep": [1, {}]}}] * 100,
}


def test_nonsense_is_counted_and_delays_nothing(tmp_path: Path) -> None:
    saying: list[Any] = []

    def nonsense(instances: list[dict[str, Any]]) -> Any:
        return saying[-1][: len(instances)] if isinstance(saying[-1], list) else saying[-1]

    with model_server(nonsense) as server, workbench(project(tmp_path, server.url)) as bench:
        slot = bench.worker._endpoints._slots["toy"]
        for case, answer in enumerate(NONSENSE.values()):
            saying.append(answer)
            slot.breaker = Breaker()
            for number in range(FAILURES + 2):
                bench.feed(records(20, seed=10 * case + number), after_s=1.5)
            settle(bench)
            assert bench.count("records") == 20 * (FAILURES + 2) * (case + 1)
            assert server.requests == FAILURES * (case + 1)  # then it is left alone
        assert outcomes(bench).keys() == {"unanswered"}
        counted = bench.count("live:test_nudge:unanswered") + bench.count("live:test_half:unanswered")
        assert counted == outcomes(bench)["unanswered"]
        assert bench.rows("SELECT count(*) FROM live_rate") == [(0,)]
        assert bench.registry.get_sample_value("outrider_live_endpoint_up", {"model": "toy"}) == 0


def test_a_slow_endpoint_holds_up_no_record(tmp_path: Path) -> None:
    with model_server(predict) as server, workbench(patient(tmp_path, server.url)) as bench:
        held = threading.Event()
        server.predict = lambda instances: predict(instances) if held.wait(PATIENCE_S) else 503
        for number in range(6):
            bench.feed(records(20, seed=number), after_s=1.5)
            bench.work()
        assert bench.count("records") == 120
        assert server.requests <= 1  # the first question is still under way
        assert outcomes(bench) == {}
        held.set()
        settle(bench)
        assert sum(outcomes(bench).values()) > 20
        assert "shed" not in outcomes(bench)


def test_records_without_an_answer_of_production_are_not_applicable(tmp_path: Path) -> None:
    with model_server(predict) as server, workbench(project(tmp_path, server.url)) as bench:
        bench.feed([record | {"outputs": {"label": None, "score": None}} for record in records(20)])
        settle(bench)
        assert outcomes(bench).keys() <= {"not_applicable"}
        assert server.requests == 0


def test_a_test_that_a_person_suspended_does_not_ask_after_a_restart_either(tmp_path: Path) -> None:
    with model_server(predict) as server, workbench(project(tmp_path, server.url)) as bench:
        bench.feed(records(50))
        settle(bench)
        asked = server.requests
        assert asked
        bench.execute(
            "UPDATE assertion SET suspended_until_us = :until, suspension = 'dear' WHERE kind = 'live_test'",
            until=bench.now_us + 3_600_000_000,
        )
        bench.restart()
        bench.feed(records(50, seed=2))
        settle(bench)
        assert server.requests == asked


def test_what_lies_far_behind_is_shed(tmp_path: Path) -> None:
    with model_server(predict) as server, workbench(patient(tmp_path, server.url)) as bench:
        bench.feed(records(20))
        bench.feed(records(20, seed=1), after_s=120)
        settle(bench)
        shed = bench.rows("SELECT DISTINCT seq FROM live_answer WHERE status = 'shed'")
        assert shed == [(1,)]
        assert outcomes(bench)["passed"] + outcomes(bench).get("failed", 0) == len(server.instances) > 0


def test_an_endpoint_that_drips_ends_with_its_deadline() -> None:
    with model_server(predict) as server:
        server.delay_s = 1.0
        with pytest.raises(ServerError, match=r"no answer within 0\.2 s"):
            endpoint(server.url, timeout_s=0.2)(Batch.from_records([{"inputs": {"x": 1.0}}], model="toy"))


@pytest.mark.parametrize(
    ("live", "told"),
    [
        ('endpoint = "http://127.0.0.1:9/x"', "endpoint needs rows_per_s"),
        ('endpoint = "file:///etc/passwd"\nrows_per_s = 5', "an http:// or https:// address expected"),
        ("rows_per_s = 0", "greater than 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, live: str, told: str) -> None:
    config = write_project(tmp_path, config=CONFIG + f"\n[models.toy.live]\n{live}\n")
    with pytest.raises(ConfigError, match=told):
        load_settings(config)


def test_a_model_with_a_replica_has_no_endpoint(tmp_path: Path) -> None:
    both = CONFIG.replace('target = "label"', 'target = "label"\npredictor = "model.py:predict"')
    config = write_project(tmp_path, config=both + LIVE.replace("URL", "http://127.0.0.1:9/x"))
    with pytest.raises(ConfigError, match="this one has a replica to ask"):
        load_settings(config)
