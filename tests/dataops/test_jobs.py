import json

import pytest
from sqlalchemy import Engine, insert, text

from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.retirement import NotRetirable, retire
from outrider.dataops.models.registry import NAMED, get, register
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.dataops.triggers.decision import DAY_US, RunGuards
from outrider.dataops.triggers.evaluation_log import RepeatedEvaluations
from outrider.dataops.triggers.firing import settle_labels
from outrider.errors import NotFound
from tests.model_sources import FUNCTION

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
            jobs.fail(connection, job, "why", targets=(), now_us=now)
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


def test_a_job_that_kills_its_process_is_given_up_after_three_attempts(engine: Engine) -> None:
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
        "error": "given up: its process died in stage 'train' in each of 3 attempts",
    }


def test_a_job_that_is_given_up_sends_its_event_and_leaves_no_challenger(engine: Engine) -> None:
    hook = (WebhookTarget("http://receiver.example", ("retrain.failed",)),)
    job = add(engine, "retrain", 1)
    for _ in range(3):
        with write(engine) as connection:
            assert jobs.claim(connection, now_us=2, targets=hook) is not None
            for version, status in (("1", "retired"), ("2", "challenger")):
                register(
                    connection,
                    model="m",
                    version=version,
                    status=status,
                    digest="d",
                    weights=None,
                    now_us=2,
                    source=FUNCTION,
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
        register(
            connection,
            model="m",
            version="2",
            status="retired",
            digest="d",
            weights=None,
            now_us=2,
            source=FUNCTION,
        )
        assert jobs.claim(connection, now_us=2) is not None
        jobs.note(connection, job, stage="gate", result={"candidate": "2"})
        jobs.fail(connection, job, "why", targets=(), now_us=3)
        assert get(connection, "m", "2").status == "retired"


def queue(engine: Engine, model: str, kind: jobs.Kind, now_us: int, **params: object) -> str:
    with write(engine) as connection:
        return jobs.add(connection, model=model, kind=kind, params=params, now_us=now_us)


def start(engine: Engine, running: list[jobs.JobRow], **most: int) -> str | None:
    """Claim a job beside those that have a process."""
    with write(engine) as connection:
        job = jobs.claim(connection, now_us=9, running=running, most=most)  # type: ignore[arg-type]
    running += [] if job is None else [job]
    return None if job is None else job.id


def test_a_dataset_and_a_gate_do_not_wait_for_trainings(engine: Engine) -> None:
    long, other = queue(engine, "m", "retrain", 1), queue(engine, "n", "retrain", 2)
    running: list[jobs.JobRow] = []
    assert start(engine, running, training=1) == long
    assert start(engine, running, training=1) is None
    dataset, gate = queue(engine, "m", "dataset", 3), queue(engine, "m", "retrain", 4, candidate="2")
    assert start(engine, running, training=1) == dataset
    assert start(engine, running, training=1) is None, "the gate may need the dataset that was queued first"
    with write(engine) as connection:
        jobs.finish(connection, dataset, "done", {}, now_us=10)
    running[:] = [job for job in running if job.id != dataset]
    assert start(engine, running, training=1) == gate
    assert start(engine, running, training=1) is None
    assert start(engine, running, training=2) == other


def test_a_model_has_one_job_in_each_lane_in_order(engine: Engine) -> None:
    first, second = queue(engine, "m", "dataset", 1), queue(engine, "m", "dataset", 2)
    running: list[jobs.JobRow] = []
    assert start(engine, running) == first
    assert start(engine, running) is None
    elsewhere = queue(engine, "n", "dataset", 3)
    assert start(engine, running) == elsewhere
    with write(engine) as connection:
        jobs.finish(connection, first, "done", {}, now_us=10)
    del running[0]
    assert start(engine, running) == second


def test_what_a_cancelled_job_has_made_leaves_and_its_process_cannot_commit(engine: Engine) -> None:
    job = add(engine, "retrain", 1)
    with write(engine) as connection:
        assert jobs.claim(connection, now_us=2) is not None
        register(
            connection,
            model="m",
            version="2",
            status="challenger",
            digest="d",
            weights=None,
            now_us=2,
            source=FUNCTION,
        )
        jobs.note(connection, job, stage="shadow", result={"candidate": "2"})
    with write(engine) as connection:
        found = jobs.cancel(connection, job, by="anna", now_us=3)
    assert (found.status, found.finished_us, found.result["error"]) == ("cancelled", 3, "cancelled by anna")
    with engine.connect() as connection:
        assert get(connection, "m", "2").status == "retired"
        assert not jobs.is_busy(connection, "m")
    for late in (
        lambda c: jobs.note(c, job, stage="gate", result={}),
        lambda c: jobs.finish(c, job, "done", {}, now_us=4),
        lambda c: jobs.wait(c, job, "version", until_us=5, result={}),
        lambda c: jobs.cancel(c, job, by="ben", now_us=6),
    ):
        with write(engine) as connection, pytest.raises(jobs.JobClosed, match="cancelled"):
            late(connection)
    with write(engine) as connection:
        jobs.requeue(connection, job)
        jobs.fail(connection, job, "late", targets=HOOK, now_us=7)
        assert jobs.get(connection, job) == found


def test_cancelled_job_of_an_upload_leaves_no_challenger_and_its_retry_brings_it_back(engine: Engine) -> None:
    with write(engine) as connection:
        register(
            connection,
            model="m",
            version="2",
            status="challenger",
            digest="d",
            weights=None,
            now_us=1,
            source=FUNCTION,
        )
        params = {"candidate": "2"}
        job = jobs.add(connection, model="m", kind="retrain", params=params, now_us=2)
        jobs.cancel(connection, job, by="anna", now_us=3)
        found = get(connection, "m", "2")
        assert (found.status, found.note) == ("retired", "cancelled by anna")
        jobs.retry(connection, job, now_us=4)
        assert get(connection, "m", "2").status == "challenger"


def test_cancelled_job_leaves_a_version_of_the_configuration(engine: Engine) -> None:
    with write(engine) as connection:
        register(
            connection, model="m", version="2", status="challenger", digest="d", weights=None, now_us=1,
            note=NAMED, source=FUNCTION,
        )  # fmt: skip
        params = {"candidate": "2"}
        job = jobs.add(connection, model="m", kind="retrain", params=params, now_us=2)
        jobs.cancel(connection, job, by="anna", now_us=3)
        assert get(connection, "m", "2").status == "challenger"


def test_retired_version_is_out_of_the_shadow_and_its_job_goes_on_to_its_end(engine: Engine) -> None:
    with write(engine) as connection:
        for version, status in (("1", "champion"), ("2", "challenger")):
            register(
                connection,
                model="m",
                version=version,
                status=status,
                digest="d",
                weights=None,
                now_us=1,
                source=FUNCTION,
            )
        params = {"candidate": "2"}
        job = jobs.add(connection, model="m", kind="retrain", params=params, now_us=2)
        jobs.claim(connection, now_us=2)
        jobs.wait(connection, job, "live records", until_us=50, result={"candidate": "2"})
        found = retire(connection, "m", "2", why="retired by anna", now_us=3)
        assert (found.status, found.note) == ("retired", "retired by anna")
        assert jobs.get(connection, job).status == "queued"
        with pytest.raises(NotRetirable, match="m@1 is champion, which cannot be retired: promote"):
            retire(connection, "m", "1", why="", now_us=4)
        with pytest.raises(NotRetirable, match=r"m@2 is retired \(retired by anna\)"):
            retire(connection, "m", "2", why="", now_us=4)
        with pytest.raises(NotFound):
            retire(connection, "m", "3", why="", now_us=4)


def test_a_retry_goes_on_behind_the_last_finished_stage(engine: Engine) -> None:
    job = queue(engine, "m", "retrain", 1, trigger="flag_rates", epochs=3)
    with write(engine) as connection:
        with pytest.raises(jobs.JobClosed, match="queued"):
            jobs.retry(connection, job, now_us=2)
        jobs.claim(connection, now_us=2)
        register(
            connection,
            model="m",
            version="2",
            status="challenger",
            digest="d",
            weights=None,
            now_us=2,
            source=FUNCTION,
        )
        jobs.note(connection, job, stage="gate", result={"dataset": "d@1", "candidate": "2", "log": ["x"]})
        jobs.fail(connection, job, "out of memory", targets=(), now_us=3, log=["y"])
        assert get(connection, "m", "2").status == "failed"
        again = jobs.retry(connection, job, now_us=4)
        twice = jobs.retry(connection, job, now_us=5)
        assert get(connection, "m", "2").status == "challenger"
    assert (again.status, again.attempts, again.lane) == ("queued", 0, "gate")
    assert again.result == {"dataset": "d@1", "candidate": "2"}
    assert again.params == {"epochs": 3, "upto_seq": None, "retry_of": job}
    assert twice.params["retry_of"] == job


def test_a_waiting_job_has_no_process_and_is_queued_again(engine: Engine) -> None:
    job = add(engine, "retrain", 1)
    with write(engine) as connection:
        jobs.claim(connection, now_us=2)
        jobs.wait(connection, job, "live records", until_us=50, result={"candidate": "2"})
        assert jobs.claim(connection, now_us=3) is None
        assert jobs.is_busy(connection, "m")
        (found,) = jobs.waiting(connection)
        assert found.result == {"candidate": "2", "waits": {"for": "live records", "until_us": 50}}
        jobs.resume(connection, job)
        again = jobs.claim(connection, now_us=4)
        assert again is not None
        assert (again.id, again.attempts) == (job, 1)


def test_a_job_that_begins_works_on_what_is_judged_by_then(engine: Engine) -> None:
    job = add(engine, "dataset", 1)
    with write(engine) as connection:
        connection.execute(text("INSERT OR REPLACE INTO cursor VALUES ('m', 'champion', 7)"))
        assert jobs.take_newest(connection, job).params == {"upto_seq": 7}


def test_an_unknown_job_is_not_found(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(NotFound, match="job_x"):
        jobs.get(connection, "job_x")
