"""Units that a version has not answered: asked again or left for the backfill, and never judged as empty."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.commands import doctor
from outrider.monitor.worker.objectives import Objectives
from tests.end_to_end.service import CONFIG, write_project

from .test_latency import overview_page
from .workbench import Workbench, workbench

ROWS = 10
ABSENT = """
from pathlib import Path

from outrider.errors import ServerError

AWAY = Path(__file__).with_suffix(".away")


def predict(batch):
    if AWAY.exists():
        raise ServerError("http://far gave no answer within 2 s")
    x = batch.column("inputs.x")
    return {"label": (x > 0.5).astype(int), "score": abs(x - 0.5) + 0.5}
"""
CHALLENGED = (
    CONFIG
    + """
[models.toy.challengers.far]
predictor = "far.py:predict"

[models.toy.challengers.near]
predictor = "near.py:predict"
"""
)


class Clock:
    """A timer that is set by hand, and the time of the records."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def objectives(self, bench: Workbench) -> Objectives:
        return Objectives(
            bench.settings.models,
            clock=lambda: bench.now_us / 1e6 + self.now_s,
            timer=lambda: self.now_s,
        )


class Bench:
    """A workbench whose models can go away."""

    def __init__(self, folder: Path, config: str) -> None:
        self.folder = folder
        path = write_project(folder, config=config)
        for name in ("model", "far", "near"):
            (folder / f"{name}.py").write_text(ABSENT, encoding="utf-8")
        self.clock = Clock()
        self.opened = workbench(path, objectives=self.clock.objectives)
        self.bench = self.opened.__enter__()

    def away(self, name: str, *, is_away: bool = True) -> None:
        path = (self.folder / name).with_suffix(".away")
        path.touch() if is_away else path.unlink()

    def feed(self, start: int, *, answered: bool = False) -> None:
        outputs = {"outputs": {"label": 1, "score": 0.9}} if answered else {}
        self.bench.feed([record(n, **outputs) for n in range(start, start + ROWS)])
        self.bench.work()

    def work_at(self, now_s: float) -> None:
        self.clock.now_s = now_s
        self.bench.work()

    def lag(self, slot: str) -> int:
        return self.bench.worker.context.waiting_records("toy", slot)

    def owed(self, role: str) -> float | None:
        self.bench.worker._refresh(force=True)
        return self.bench.registry.get_sample_value("outrider_owed_records", {"model": "toy", "role": role})

    def answered(self, version: str) -> int:
        """Records, by blocks with an answer."""
        found = self.bench.rows("SELECT count(*) FROM answer WHERE version = :v", v=version)
        return ROWS * int(found[0][0])


def record(number: int, **rest: Any) -> dict[str, Any]:
    return {"id": f"r{number}", "inputs": {"x": number % 100 / 100}, "attrs": {"device": "a"}, **rest}


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, CONFIG)
    yield made
    made.opened.__exit__(None, None, None)


@pytest.fixture
def challenged(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, CHALLENGED)
    yield made
    made.opened.__exit__(None, None, None)


def test_unit_without_an_answer_is_judged_once_the_champion_answers(alone: Bench) -> None:
    bench = alone.bench
    alone.feed(0)
    alone.away("model")
    alone.feed(100)
    alone.feed(200)
    assert (bench.count("records"), alone.answered("1"), alone.owed("champion")) == (10, 10, 20)
    assert len(bench.rows("SELECT id FROM backfill")) == 1  # however long it lasts
    alone.away("model", is_away=False)
    alone.work_at(1.0)
    assert bench.count("records") == 10  # it rests
    alone.work_at(1000.0)
    assert (bench.count("records"), bench.count("backfilled"), alone.answered("1")) == (30, 20, 30)
    assert alone.owed("champion") == 0
    assert bench.rows("SELECT count(*) FROM record WHERE predicted IS NULL") == [(0,)]


def test_page_and_doctor_say_who_does_not_answer_and_what_waits(challenged: Bench) -> None:
    bench = challenged.bench
    challenged.feed(0)
    for name in ("model", "far"):
        challenged.away(name)
    challenged.feed(100)
    bench.worker._refresh(force=True)
    told = doctor._latency(bench.config)["toy"]
    assert told.endswith("10 not answered, asked again")
    page = overview_page(bench)
    assert "<b>1</b> does not answer: http://far gave no answer within 2 s. 10 records wait" in page
    for name in ("model", "far"):
        challenged.away(name, is_away=False)
    challenged.feed(200)
    bench.worker._refresh(force=True)
    assert "does not answer" not in overview_page(bench)


def test_champion_that_answers_the_stream_is_asked_at_once_about_what_it_owes(alone: Bench) -> None:
    alone.away("model")
    alone.feed(0)
    alone.away("model", is_away=False)
    alone.feed(100)
    assert alone.bench.count("records") == 20


def test_records_that_production_answered_are_judged_without_the_replica(alone: Bench) -> None:
    alone.away("model")
    alone.feed(0, answered=True)
    assert (alone.bench.count("records"), alone.owed("champion")) == (10, 0)


def test_unit_that_is_never_answered_is_shed_at_the_end_of_its_time(alone: Bench) -> None:
    alone.away("model")
    alone.feed(0)
    alone.work_at(90_000.0)
    assert (alone.bench.count("records"), alone.bench.count("shed:expired"), alone.owed("champion")) == (
        0,
        10,
        0,
    )


def test_owed_unit_survives_a_restart_of_the_worker(alone: Bench) -> None:
    alone.away("model")
    alone.feed(0)
    alone.away("model", is_away=False)
    alone.bench.restart()
    alone.bench.work()
    assert (alone.bench.count("records"), alone.answered("1")) == (10, 10)


def test_challenger_without_an_answer_is_asked_again_and_holds_up_no_other(challenged: Bench) -> None:
    bench = challenged.bench
    challenged.feed(0)
    challenged.away("far")
    for start in (100, 200, 300):
        challenged.feed(start)
    assert (challenged.answered("1"), challenged.answered("near"), challenged.answered("far")) == (40, 40, 10)
    assert (challenged.lag("champion"), challenged.lag("near"), challenged.lag("far")) == (0, 0, 30)
    assert (challenged.owed("challenger"), bench.count("unanswered", "far")) == (30, 0)
    challenged.away("far", is_away=False)
    challenged.work_at(2.0)
    assert (challenged.answered("far"), challenged.lag("far")) == (40, 0)
    assert challenged.owed("challenger") == 0


def test_challenger_that_never_answers_gives_up_what_is_too_old(challenged: Bench) -> None:
    challenged.away("far")
    challenged.feed(0)
    challenged.work_at(90_000.0)
    challenged.work_at(90_100.0)
    assert (challenged.lag("far"), challenged.bench.count("unanswered", "far")) == (0, 10)
    assert (challenged.answered("1"), challenged.answered("near")) == (10, 10)


def test_server_that_goes_while_a_unit_is_answered_poisons_no_record() -> None:
    from outrider.errors import ServerError
    from outrider.monitor.engine.poison import answered_around

    asked = []

    def answer(start: int, stop: int) -> dict[str, Any]:
        asked.append((start, stop))
        if len(asked) % 2:
            raise ServerError("http://far gave no answer within 2 s")
        return {"label": list(range(start, stop))}

    outputs, poison, failure = answered_around(answer, 64)
    assert (outputs, poison, asked) == (None, [], [(0, 64)])
    assert failure.startswith("ServerError: ")
