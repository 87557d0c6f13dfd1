import json

import pytest
from sqlalchemy import Engine, insert, text

from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.improvement import jobs
from outrider.dataops.models.registry import get, register
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.dataops.triggers.decision import DAY_US, RunGuards
from outrider.dataops.triggers.evaluation_log import RepeatedEvaluations
from outrider.dataops.triggers.firing import settle_labels
from outrider.errors import NotFound

GUARDS = RunGuards(cooldown_s=60, daily_budget=3)
SCOPE = LabelScope("m", "m-flagged")
HOOK = (WebhookTarget("http://receiver.example", ("retrain.requested",)),)
SERVICE = "http://127.0.0.1:8470"
MINUTE = 60_000_000
REPEATED = RepeatedEvaluations(again_s=0.0, scored_again_s=0.0)
"""Every evaluation is logged."""


def flagged_and_labelled(engine: Engine, *names: str) -> None:
    with write(engine) as connection:
        for row, name in enumerate(names):
            record = {"model": "m", "id": name, "seq": 1, "row": row, "ts_us": 0, "digest": 0}
            connection.execute(insert(tables.Record), [record])
            flag = {
                "id": name,
                "model": "m",
                "record_id": name,
                "assertion": "a",
                "revision": "1",
                "slot": "champion",
            }
            where = {"seq": 1, "row": row, "ts_us": 0}
            connection.execute(insert(tables.Flag), [{**flag, **where, "severity": 1.0, "level": "info"}])
            label = {
                "seq": 2,
                "row": ord(name),
                "model": "m",
                "record_id": name,
                "source": "human",
                "value": "1",
            }
            connection.execute(
                insert(improvement_tables.Label),
                [label | {"label": {"label": 1}, "ts_us": 0, "received_us": 0}],
            )
        connection.execute(text("INSERT OR REPLACE INTO cursor VALUES ('m', 'champion', 2)"))


def trigger(engine: Engine, now_us: int) -> str | None:
    with write(engine) as connection:
        return settle_labels(connection, SCOPE, GUARDS, threshold=2, now_us=now_us, repeated=REPEATED)[1]


def test_enough_labelled_flags_make_one_job_and_its_dataset_one_event(engine: Engine) -> None:
    flagged_and_labelled(engine, "a")
    assert trigger(engine, 1) is None
    flagged_and_labelled(engine, "b")
    job = trigger(engine, 2)
    assert job is not None
    assert trigger(engine, 3) is None  # one is queued
    with engine.connect() as connection:
        found = jobs.get(connection, job)
        assert connection.execute(text("SELECT count(*) FROM outbox")).scalar() == 0, "not before the data"
    with write(engine) as connection:
        jobs.request_training(connection, found, None, service=SERVICE, targets=HOOK, now_us=4)
        events = connection.execute(text("SELECT event, payload FROM outbox")).all()
    assert (found.status, found.params["upto_seq"], found.params["labelled_flags"]) == ("queued", 2, 2)
    assert [event for event, _ in events] == ["retrain.requested"]
    assert json.loads(events[0][1])["data"]["job"] == job


def test_cooldown_and_daily_budget_hold_automatic_jobs_back(engine: Engine) -> None:
    flagged_and_labelled(engine, "a", "b")
    now = 1
    for _ in range(GUARDS.daily_budget):
        job = trigger(engine, now)
        assert job is not None
        with write(engine) as connection:
            jobs.finish(connection, job, "failed", {}, now_us=now)
        assert trigger(engine, now + MINUTE - 1) is None
        now += MINUTE
    assert trigger(engine, now) is None
    assert trigger(engine, 1 + DAY_US) is not None


def add(engine: Engine, kind: jobs.Kind, now_us: int) -> str:
    with write(engine) as connection:
        return jobs.add(connection, model="m", kind=kind, params={}, now_us=now_us)


def test_what_a_crash_interrupted_comes_first_then_datasets_then_the_oldest(engine: Engine) -> None:
    first, second, dataset = add(engine, "retrain", 1), add(engine, "retrain", 2), add(engine, "dataset", 3)
    order = []
    for now in range(3):
        with write(engine) as connection:
            job = jobs.claim(connection, now_us=now)
            assert job is not None
        with write(engine) as connection:  # the trainer died: the same job again
            again = jobs.claim(connection, now_us=now)
            assert again is not None
            assert (again.id, again.attempts) == (job.id, 2)
            jobs.finish(connection, job.id, "done", {}, now_us=now)
        order.append(job.id)
    assert order == [dataset, first, second]


def test_a_job_that_kills_its_trainer_is_given_up_after_three_attempts(engine: Engine) -> None:
    job = add(engine, "retrain", 1)
    for _ in range(3):
        with write(engine) as connection:
            assert jobs.claim(connection, now_us=2) is not None
            jobs.note(connection, job, stage="train", result={"dataset": "d@1"})
    with write(engine) as connection:
        assert jobs.claim(connection, now_us=3) is None
        found = jobs.get(connection, job)
    assert found.status == "failed"
    assert found.result == {
        "dataset": "d@1",
        "error": "given up: the trainer died in stage 'train' in each of 3 attempts",
    }


def test_a_job_that_is_given_up_sends_its_event_and_leaves_no_challenger(engine: Engine) -> None:
    hook = (WebhookTarget("http://receiver.example", ("retrain.failed",)),)
    job = add(engine, "retrain", 1)
    for _ in range(3):
        with write(engine) as connection:
            assert jobs.claim(connection, now_us=2, targets=hook) is not None
            for version, status in (("1", "retired"), ("2", "challenger")):
                register(
                    connection, model="m", version=version, status=status, digest="d", weights=None, now_us=2
                )
            jobs.note(connection, job, stage="gate", result={"candidate": "2"})
    with write(engine) as connection:
        assert jobs.claim(connection, now_us=3, targets=hook) is None
        assert get(connection, "m", "2").status == "failed"
        told = connection.scalars(text("SELECT payload FROM outbox")).all()
    assert [json.loads(one)["data"]["job"] for one in told] == [job]


def test_a_failed_job_leaves_what_a_person_decided_on_as_it_is(engine: Engine) -> None:
    job = add(engine, "retrain", 1)
    with write(engine) as connection:
        register(connection, model="m", version="2", status="retired", digest="d", weights=None, now_us=2)
        jobs.note(connection, job, stage="gate", result={"candidate": "2"})
        jobs.fail(connection, job, "why", targets=(), now_us=3)
        assert get(connection, "m", "2").status == "retired"


def test_an_unknown_job_is_not_found(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(NotFound, match="job_x"):
        jobs.get(connection, "job_x")
