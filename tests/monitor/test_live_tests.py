"""Live behavioral tests on the worker: budgets, probabilities, rates, alarms, shedding."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.behavioral_tests.statistics import RateSequence
from outrider.monitor.engine.asks import Ask
from outrider.monitor.worker.cursors import champion_cursor
from outrider.monitor.worker.live_budget import BURST_S, SAVED_S, SHARE, LiveBudget, TimeBudget
from tests.end_to_end.service import CONFIG, write_project

from .workbench import Workbench, workbench

TESTS = """
from outrider.behavioral_tests import DIR, INV, expect


def nudge(batch, rng):
    return batch.with_columns({"inputs.x": batch.column("inputs.x") + 0.05})


def jump(batch, rng):
    return batch.with_columns({"inputs.x": batch.column("inputs.x") + rng.uniform(0, 0.1, batch.rows)})


test_nudge = INV(perturb=nudge, live=0.5, tolerance=0.2)
test_budget = INV(perturb=jump, live_rows_per_s=20, tolerance=0.2)
test_rises = DIR(perturb=nudge, expect=expect.monotone(direction="increasing"), live=0.3, tolerance=0.9)
"""
LIVE = "\n[models.toy.live]\nrows_per_s = 30\n"


def project(folder: Path, *, tests: str = TESTS, config: str = CONFIG + LIVE) -> Path:
    path = write_project(folder, config=config)
    (folder / "test_toy.py").write_text(tests, encoding="utf-8")
    return path


def stream(
    rows: int, seed: int = 0, *, at: Callable[[random.Random], float] = random.Random.random
) -> list[Any]:
    rng = random.Random(seed)
    return [
        {"id": f"r{seed}-{n}", "inputs": {"x": round(at(rng), 6)}, "attrs": {"device": "a"}}
        for n in range(rows)
    ]


def kept(bench: Workbench) -> list[list[tuple[Any, ...]]]:
    """Everything that live tests leave behind."""
    return [
        bench.rows("SELECT * FROM live_answer ORDER BY test, record_id"),
        bench.rows("SELECT * FROM live_rate ORDER BY test"),
        bench.rows("SELECT * FROM live_budget"),
        bench.rows("SELECT name, value FROM counter WHERE name LIKE 'live:%' ORDER BY name"),
        bench.rows("SELECT id, record_id, evidence FROM flag WHERE assertion LIKE 'test_%' ORDER BY id"),
        bench.rows(
            "SELECT assertion, opened_us, flags, note FROM incident WHERE kind = 'live_test' ORDER BY 1"
        ),
    ]


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_joined_blocks_and_restarts_change_no_question_probability_rate_or_alarm(tmp_path: Path) -> None:
    seen = []
    sizes = [3, 1, 40, 7, 120, 60, 2, 2, 90, 30] * 2
    for case, every in enumerate((1, 10, len(sizes))):
        with workbench(project(tmp_path / str(case))) as bench:
            for number, size in enumerate(sizes):
                bench.feed(stream(size, seed=number), after_s=0.15)
                if number % every == every - 1:
                    bench.work()
                    if case == 1:
                        bench.restart()
            bench.work()
            seen.append(kept(bench))
    for one, two, three in zip(*seen, strict=True):
        assert one == two == three
    answers, rates, budget, counts, flags, _incidents = seen[0]
    assert {row[1] for row in answers} == {"test_nudge", "test_budget", "test_rises"}
    assert len({row[-1] for row in answers}) > 10  # probabilities that went with the traffic
    assert len(rates) == 3
    assert budget
    assert flags
    assert sum(value for _, value in counts) == len(answers)


def test_the_stored_rate_is_that_of_the_stored_answers(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        for number in range(6):
            bench.feed(
                [record | {"weight": 1.0 + number % 2 * 7} for record in stream(80, seed=number)], after_s=0.3
            )
        bench.work()
        for test, asked, failed, rate, low, high, state in bench.rows(
            "SELECT test, asked, failed, rate, low, high, state FROM live_rate"
        ):
            rows = bench.rows(
                "SELECT status, probability, weight FROM live_answer JOIN record ON record_id = id"
                " WHERE test = :test AND status IN ('passed', 'failed')",
                test=test,
            )
            failures = np.array([row[0] == "failed" for row in rows])
            weights = np.array([row[2] / row[1] for row in rows])
            expected = RateSequence.of(failures, weights)
            assert (asked, failed) == (len(rows), failures.sum())
            assert json.loads(state) == expected.to_dict()
            assert (rate, (low, high)) == (expected.rate, expected.interval())
            assert rate == pytest.approx(failures @ weights / weights.sum(), rel=0.05)


def test_no_more_rows_are_asked_than_the_budget_pays_for(tmp_path: Path) -> None:
    tests = TESTS.replace("live=0.5", "live=1.0").replace("live=0.3", "live=1.0")
    with workbench(project(tmp_path, tests=tests)) as bench:
        for number in range(120):  # 400 rows per second for 24 seconds
            bench.feed(stream(80, seed=number), after_s=0.2)
        bench.work()
        asked = bench.rows("SELECT seq, count(*) FROM live_answer GROUP BY 1")
        total = sum(count for _, count in asked)
        assert 0.8 * 30 * 24 <= total <= 30 * (24 + BURST_S) * 1.15
        late = sum(count for seq, count in asked if seq > 60)
        assert late == pytest.approx(30 * 12, rel=0.2)  # once what was saved is spent
        assert bench.rows("SELECT count(*) FROM live_answer WHERE status = 'shed'") == [(0,)]


def test_a_budget_depends_on_blocks_and_their_times_alone() -> None:
    budget = LiveBudget({"a": 1.0, "b": 0.1}, {"b": 5.0}, common=40.0)
    blocks = [(n * 130_000, 1 + n * 7919 % 200) for n in range(400)]
    whole = [budget.advance(at, rows) for at, rows in blocks]
    parts = []
    again = LiveBudget({"a": 1.0, "b": 0.1}, {"b": 5.0}, common=40.0)
    for at, rows in blocks:
        state = json.loads(json.dumps(again.to_dict()))
        again = LiveBudget({"a": 1.0, "b": 0.1}, {"b": 5.0}, common=40.0)
        again.restore(state)
        parts.append(again.advance(at, rows))
    assert whole == parts
    spent = sum(rows * sum(asked.values()) for asked, (_, rows) in zip(whole, blocks, strict=True))
    seconds = blocks[-1][0] / 1e6
    assert 0.7 * 40 * seconds <= spent <= 40 * (seconds + BURST_S)
    assert all(0.0 <= p <= 1.0 for asked in whole for p in asked.values())
    assert all(asked["b"] <= 0.1 for asked in whole)


def test_without_a_budget_the_rate_is_the_probability() -> None:
    budget = LiveBudget({"a": 0.05}, {})
    assert budget.advance(0, 10) == budget.advance(10**9, 10**6) == {"a": 0.05}
    assert not budget.is_limited


def test_a_proven_rate_is_one_alarm_one_incident_and_ends_with_the_version(tmp_path: Path) -> None:
    hook = '\n[[webhooks]]\nurl = "http://127.0.0.1:9/x"\nsecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"\n'
    with workbench(project(tmp_path, config=CONFIG + hook)) as bench:
        bench.feed(stream(200, at=lambda rng: rng.uniform(0, 0.4)))  # nothing near the border at 0.5
        bench.work()
        assert bench.rows("SELECT alarm_us FROM live_rate WHERE test = 'test_nudge'") == [(None,)]
        assert bench.rows("SELECT count(*) FROM incident") == [(0,)]
        for number in range(1, 6):
            bench.feed(stream(60, seed=number, at=lambda rng: rng.uniform(0.46, 0.5)))
            bench.work()
        bench.restart()
        ((alarm_us, low, tolerance),) = bench.rows(
            "SELECT alarm_us, low, tolerance FROM live_rate WHERE test = 'test_nudge'"
        )
        assert alarm_us is not None
        assert low > tolerance
        query = "SELECT kind, status, level, note FROM incident WHERE assertion = 'test_nudge'"
        ((kind, status, level, note),) = bench.rows(query)
        assert (kind, status, level) == ("live_test", "open", "warning")
        assert "20.00% are tolerated" in note
        told = bench.rows("SELECT payload FROM outbox WHERE event = 'incident.opened'")
        assert [json.loads(row[0])["data"]["assertion"] for row in told].count("test_nudge") == 1
        labels = {"model": "toy", "test": "test_nudge"}
        assert bench.registry.get_sample_value("outrider_live_test_alarm", labels) == 1
        shown = bench.registry.get_sample_value(
            "outrider_live_test_failure_ratio", labels | {"figure": "low"}
        )
        assert shown == low
        # silence proves nothing: an hour later it stands
        bench.feed(stream(1, seed=90, at=lambda _: 0.1), after_s=3600)
        bench.work()
        assert bench.rows(query)[0][1] == "open"
        bench.execute(
            "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us, note)"
            " SELECT model, '2', 'champion', digest, source, created_us, changed_us, '' FROM model_version"
        )
        bench.execute("UPDATE model_version SET status = 'retired' WHERE version = '1'")
        bench.worker._refresh(force=True)
        assert bench.registry.get_sample_value("outrider_live_test_alarm", labels) == 0
        bench.feed(stream(1, seed=91, at=lambda _: 0.1))
        bench.work()
        assert bench.rows(query)[0][1] == "resolved"
        assert bench.rows("SELECT count(*) FROM incident WHERE assertion = 'test_nudge'") == [(1,)]


def test_failures_that_are_tolerated_are_flags_and_no_incident(tmp_path: Path) -> None:
    tests = TESTS.replace("tolerance=0.2", "tolerance=0.7")
    with workbench(project(tmp_path, tests=tests, config=CONFIG)) as bench:
        bench.feed(stream(300, at=lambda rng: rng.uniform(0, 0.4)))
        bench.work()
        # failures come in a storm that an assertion would be an incident for
        bench.feed(stream(100, seed=1, at=lambda rng: rng.uniform(0.46, 0.5)), after_s=600)
        bench.work()
        assert len(bench.flags("test_nudge")) > 10
        assert bench.rows("SELECT count(*) FROM incident WHERE assertion LIKE 'test_%'") == [(0,)]


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_an_edited_test_starts_a_sequence_of_its_own_and_ends_the_incident(tmp_path: Path) -> None:
    tests = "\n".join(TESTS.splitlines()[:-1]).replace("tolerance=0.2", "tolerance=0.0")
    with workbench(project(tmp_path, tests=tests, config=CONFIG)) as bench:
        bench.feed(stream(40, at=lambda rng: rng.uniform(0.46, 0.5)))
        bench.work()
        assert bench.rows("SELECT status FROM incident WHERE assertion = 'test_nudge'") == [("open",)]
        edited = tests.replace("live=0.5", "live=0.6")
        (tmp_path / "test_toy.py").write_text(edited, encoding="utf-8")
        bench.restart()
        bench.feed(stream(40, seed=1, at=lambda _: 0.1))
        bench.work()
        assert bench.rows("SELECT status FROM incident WHERE assertion = 'test_nudge'") == [("resolved",)]
        found = bench.rows("SELECT failed > 0 FROM live_rate WHERE test = 'test_nudge' ORDER BY updated_us")
        assert found == [(1,), (0,)]


def test_behind_the_traffic_live_tests_are_shed_first_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(champion_cursor, "SHED_LIVE_BEHIND_ROWS", 150)
    with workbench(project(tmp_path, config=CONFIG)) as bench:
        for number in range(8):
            bench.feed(stream(50, seed=number), after_s=1.5)  # too far apart to be joined
        bench.work()
        assert bench.count("records") == 400
        shed = bench.rows("SELECT DISTINCT seq FROM live_answer WHERE status = 'shed' ORDER BY seq")
        assert shed == [(1,), (2,), (3,), (4,), (5,)]
        total = bench.rows("SELECT count(*), sum(status = 'shed') FROM live_answer WHERE test = 'test_nudge'")
        assert bench.count("live:test_nudge:shed") == total[0][1]
        asked = bench.count("live:test_nudge:passed") + bench.count("live:test_nudge:failed")
        assert asked + bench.count("live:test_nudge:shed") == total[0][0]
        assert bench.rows("SELECT asked FROM live_rate WHERE test = 'test_nudge'") == [(asked,)]


def test_slow_live_tests_get_a_share_of_the_time_and_no_more() -> None:
    now = 0.0
    budget = TimeBudget(clock=lambda: now)
    asked = 0.0
    for _ in range(2000):
        if budget.allows():
            budget.spend(0.5)
            now, asked = now + 0.5, asked + 0.5
        now += 0.5
    assert SHARE * now * 0.9 <= asked <= SHARE * now + SAVED_S + 0.5


def test_a_slow_live_test_is_shed_and_the_records_go_on(tmp_path: Path) -> None:
    slow = TESTS.replace(
        "def nudge(batch, rng):", "def nudge(batch, rng):\n    __import__('time').sleep(0.2)"
    )
    with workbench(project(tmp_path, tests=slow, config=CONFIG)) as bench:
        bench.worker.context.pipelines["toy"].time._saved_s = 0.5
        for number in range(8):
            bench.feed(stream(20, seed=number), after_s=1.5)
        bench.work()
        assert bench.count("records") == 160
        assert bench.count("live:test_nudge:shed") > 0
        assert bench.count("live:test_nudge:passed") > 0


def test_all_copies_of_a_unit_are_one_question_to_the_replica(tmp_path: Path) -> None:
    with workbench(project(tmp_path, config=CONFIG)) as bench:
        calls: list[int] = []
        submit = bench.worker.engines.submit

        def counted(ask: Ask) -> None:
            calls.append(ask.batch.rows)
            submit(ask)

        bench.worker.engines.submit = counted  # type: ignore[method-assign]
        bench.feed(stream(200))
        bench.work()
        ((copies,),) = bench.rows("SELECT count(*) FROM live_answer")
        assert calls == [200, copies]


NARROW = """
def predict(batch):
    x = batch.column("inputs.x")
    assert not (x > 1.0).any(), "beyond what I was made for"
    return {"label": (x > 0.5).astype(int), "score": abs(x - 0.5) + 0.5}
"""


def test_copies_that_the_model_cannot_take_are_counted_and_the_others_judged(tmp_path: Path) -> None:
    config = project(tmp_path, config=CONFIG)
    (tmp_path / "model.py").write_text(NARROW, encoding="utf-8")
    with workbench(config) as bench:
        bench.feed(stream(100, at=lambda rng: rng.choice([0.2, 0.97])))
        bench.work()
        outcomes = dict(
            bench.rows("SELECT status, count(*) FROM live_answer WHERE test = 'test_nudge' GROUP BY 1")
        )
        assert set(outcomes) == {"passed", "unanswered"}
        assert bench.count("live:test_nudge:unanswered") == outcomes["unanswered"]
        assert bench.count("poison") == 0  # the records themselves are well
        assert not bench.worker.context.versions["toy"].failures


SEVERAL = """
from outrider.behavioral_tests import INV


def beyond(name):
    def perturb(batch, rng):
        x = batch.column("inputs.x") + 1.0
        return batch.with_columns({"inputs.x": x, f"inputs.{name}": x})

    return perturb


test_a = INV(perturb=beyond("a"), live=1.0)
test_b = INV(perturb=beyond("b"), live=1.0)
test_c = INV(perturb=beyond("c"), live=1.0)
"""


def test_questions_that_a_version_cannot_take_do_not_disable_it(tmp_path: Path) -> None:
    config = project(tmp_path, tests=SEVERAL, config=CONFIG)
    (tmp_path / "model.py").write_text(NARROW, encoding="utf-8")
    with workbench(config) as bench:
        for number in range(2):
            bench.feed(stream(40, seed=number))
            bench.work()
        assert not bench.worker.context.versions["toy"].failures
        # three asks of a unit, of one schema each, got no answer at all
        assert bench.rows("SELECT test, status, count(*) FROM live_answer GROUP BY 1, 2") == [
            (test, "unanswered", 80) for test in ("test_a", "test_b", "test_c")
        ]
        assert bench.rows("SELECT count(*) FROM record WHERE predicted IS NULL") == [(0,)]


CHAT = """
from outrider.behavioral_tests import DIR, INV, expect, perturb


def brighter(batch, rng):
    return batch.with_columns({"inputs.image": batch.tensor("inputs.image") + 0.5})


def longer(batch, rng):
    grown = [list(values) + [1.0] for values in batch.column("inputs.values")]
    return batch.with_columns({"inputs.values": grown})


test_polite = INV(perturb=perturb.chat.politeness(), live=1.0, tolerance=0.5)
test_image = INV(perturb=brighter, expect=expect.same("bright"), live=1.0, tolerance=0.5)
test_values = DIR(perturb=longer, expect=expect.monotone("total", direction="increasing"), live=1.0)
"""
CHAT_MODEL = """
import numpy as np


def predict(batch):
    said = [sum(len(message["content"]) for message in chat) for chat in batch.column("inputs.messages")]
    return {
        "label": [int(length > 40) for length in said],
        "bright": batch.tensor("inputs.image").mean(axis=(1, 2)) > 0.6,
        "total": np.array([sum(values) for values in batch.column("inputs.values")], dtype=float),
    }
"""


def test_conversations_lists_and_images_are_asked_about(tmp_path: Path) -> None:
    config = project(tmp_path, tests=CHAT, config=CONFIG.replace('assertions = ["checks.py"]\n', ""))
    (tmp_path / "model.py").write_text(CHAT_MODEL, encoding="utf-8")
    with workbench(config) as bench:
        records = [
            {
                "id": f"r{n}",
                "inputs": {
                    "messages": [{"role": "user", "content": "What is in the box? " + "x" * n}],
                    "image": np.full((4, 4), 0.01 * n).tolist(),
                    "values": [0.5] * (n % 4 + 1),
                },
            }
            for n in range(40)
        ]
        bench.feed(records)
        bench.work()
        found = {
            (test, status): count
            for test, status, count in bench.rows(
                "SELECT test, status, count(*) FROM live_answer GROUP BY 1, 2"
            )
        }
        assert found["test_values", "passed"] == 40
        assert found["test_image", "failed"] == sum(0.1 < 0.01 * n <= 0.6 for n in range(40))
        assert found["test_polite", "failed"] + found["test_polite", "passed"] == 40
        assert found["test_polite", "failed"] > 0
        evidence = json.loads(bench.rows("SELECT evidence FROM flag WHERE assertion = 'test_polite'")[0][0])
        assert len(evidence["inputs"]["messages"][0]["content"]) > 20
