"""Stories of retrainings on the page: sentences, steps, pages of them, the line of champions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from outrider.dataops.improvement.verdicts import keep_verdict
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import Job
from outrider.monitor.views.retrains.stories import Story, champion_line, list_stories
from tests.databases import migrated
from tests.gate_evidence import kept_evidence
from tests.model_sources import FUNCTION


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = migrated(tmp_path / "state.db")
    yield made
    made.dispose()


def add_job(engine: Engine, at_us: int, **more: Any) -> str:
    row = {
        "id": f"job_{at_us}", "model": "m", "kind": "retrain", "status": "done", "stage": "gate",
        "params": {}, "result": {}, "attempts": 1, "created_us": at_us,
    }  # fmt: skip
    with write(engine) as connection:
        connection.execute(insert(Job).values(**row | more))
    return str(row["id"])


def add_verdict(engine: Engine, at_us: int, *, job: str | None, **more: Any) -> None:
    evidence = kept_evidence() | more.pop("evidence", {}) | ({"job": job} if job else {})
    row: dict[str, Any] = {
        "candidate": "2",
        "champion": "1",
        "promoted": False,
        "reasons": ["failed: it is worse; by far"],
    }
    with write(engine) as connection:
        keep_verdict(connection, model="m", evidence=evidence, now_us=at_us, **row | more)


def stories(engine: Engine) -> list[Story]:
    return list_stories(engine, "m")[0]


def test_a_refused_candidate_is_told_from_its_trigger_on(engine: Engine) -> None:
    result = {
        "seconds": {"dataset": 0.5, "train": 2.0}, "labels": {"rows": 1_200}, "dataset": "m-flagged@7",
        "candidate": "2", "champion": "1", "epoch": 1,
    }  # fmt: skip
    job = add_job(engine, 1, status="refused", params={"labelled_flags": 1_200}, result=result)
    found = {"suites": [{}], "fresh": {"dataset": "m-flagged@7 held out", "excess": {"rows": 40}}}
    add_verdict(engine, 2, job=job, evidence=found)
    (story,) = stories(engine)
    assert (story.outcome, story.sentence) == ("refused", "Version 2 was refused: it is worse.")
    assert [(step.name, step.text, step.dataset, step.seconds) for step in story.steps] == [
        ("Trigger", "1,200 labelled flagged records", None, None),
        ("Dataset", "1,200 rows added", ("m-flagged", 7), 0.5),
        ("Training", "version 2 from version 1, 1 epoch", None, 2.0),
        ("Evidence", "1 behavioral tests, 40 labelled rows of m-flagged@7 held out", None, None),
        ("Verdict", "refused, against version 1", None, None),
    ]


@pytest.mark.parametrize(
    ("status", "result", "sentence"),
    [
        ("failed", {"error": "no memory\n  at line 3"}, "The retraining failed in stage train: no memory."),
        ("queued", {}, "The retraining waits in the queue."),
        ("running", {}, "The retraining is at stage train."),
        ("refused", {"reasons": ["it is champion"]}, "The retraining was refused: it is champion."),
        ("done", {}, "The retraining ended: there was nothing new."),
    ],
)  # fmt: skip
def test_a_job_without_verdict_says_where_it_is(
    engine: Engine, status: str, result: dict[str, Any], sentence: str
) -> None:
    add_job(engine, 1, status=status, stage="train", result=result)
    assert stories(engine)[0].sentence == sentence


def test_a_look_at_all_versions_says_that_nobody_won_and_no_training(engine: Engine) -> None:
    look = {"trigger": "rolling comparison", "label_seq": 7}
    add_job(engine, 1, status="done", params=look, result={"reasons": ["no version is better", "more"]})
    assert stories(engine)[0].sentence == "All versions were compared: no version is better."
    job = add_job(engine, 2, status="done", params=look, result={"candidate": "2"})
    found = {"rolling": {"standings": [{}, {}]}, "passed": True}
    add_verdict(engine, 2, job=job, promoted=True, evidence=found, reasons=["passed: it is better"])
    story = stories(engine)[0]
    assert story.sentence == "Version 2 became champion in place of 1: it passed 1 check."
    assert [(step.name, step.text) for step in story.steps] == [
        ("Trigger", "rolling comparison"),
        ("Evidence", "2 versions on the latest labelled rows"),
        ("Verdict", "promoted, against version 1"),
    ]


@pytest.mark.parametrize(
    ("promoted", "evidence", "sentence"),
    [
        (True, {"passed": True}, "Version 2 became champion in place of 1: it passed 1 check."),
        (False, {"undecided": True}, "Version 2 is undecided against 1: latency: 9 of 1000 records."),
        (False, {"passed": True}, "Version 2 passed 1 check."),
    ],
)
def test_a_verdict_is_told_in_one_sentence(
    engine: Engine, promoted: bool, evidence: dict[str, Any], sentence: str
) -> None:
    open_checks = ["undecided: latency: 9 of 1000 records; more may decide"] * ("undecided" in evidence)
    reasons = [*open_checks, "passed: all is well"]
    add_verdict(engine, 1, job=None, promoted=promoted, evidence=evidence, reasons=reasons)
    assert stories(engine)[0].sentence == sentence


def test_pages_meet_every_story_once(engine: Engine) -> None:
    for at_us in range(1, 24):
        job = add_job(engine, 10 * at_us)
        add_verdict(engine, 10 * at_us + 5, job=job if at_us % 2 else None)
    seen: list[tuple[int, bool]] = []
    before = None
    while True:
        told, before = list_stories(engine, "m", limit=4, before_us=before)
        seen += [(story.at_us, story.job is None) for story in told]
        if before is None:
            break
    alone = [(10 * at_us + 5, True) for at_us in range(1, 24) if not at_us % 2]
    assert seen == sorted([(10 * at_us, False) for at_us in range(1, 24)] + alone, reverse=True)


def test_the_line_of_champions_covers_the_time(engine: Engine, tmp_path: Path) -> None:
    assert champion_line(engine, "m", now_us=9) == []
    objects = LocalObjects(tmp_path)
    with write(engine) as connection:
        models.register_initial(
            connection,
            objects,
            model="m",
            version="1",
            content=b"1",
            is_weights=True,
            now_us=100,
            source=FUNCTION,
        )
        models.register(
            connection,
            model="m",
            version="2",
            status="challenger",
            digest="d",
            weights=None,
            now_us=150,
            source=FUNCTION,
        )
        models.promote(connection, "m", "2", now_us=200, reason="", by="gate")
        models.rollback(connection, "m", now_us=400, reason="", by="ann")
    found = champion_line(engine, "m", now_us=500)
    assert [(reign.change.version, reign.left, reign.width) for reign in found] == [
        ("1", 0.0, 0.25), ("2", 0.25, 0.5), ("1", 0.75, 0.25),
    ]  # fmt: skip
