"""Triggers fire: jobs, suggestions, memory and log, in one transaction each."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from outrider.dataops.improvement import jobs
from outrider.dataops.models.champion_history import note_change
from outrider.dataops.outbox import EVENTS, WebhookTarget
from outrider.dataops.state.database import write
from outrider.dataops.triggers import alerts, evaluation_log
from outrider.dataops.triggers.alerts import AlertKey
from outrider.dataops.triggers.decision import DAY_US, Evaluation, RunGuards, Signal, TriggerName
from outrider.dataops.triggers.evaluation_log import MOST_KEPT, EvaluationRow, RepeatedEvaluations
from outrider.dataops.triggers.firing import note_manual, preview, settle
from outrider.dataops.triggers.inputs import read_history
from outrider.dataops.triggers.signals import OpenIncident, incidents_signal
from tests.databases import migrated
from tests.running_jobs import begun
from tests.soak import examples

MINUTE = 60_000_000
GUARDS = RunGuards(cooldown_s=60, daily_budget=4, failures=3)
SUGGEST = RunGuards(cooldown_s=60, daily_budget=4, failures=3, is_automatic=False)
HOOK = (WebhookTarget("http://receiver.example", EVENTS),)
CAUSES: dict[str, TriggerName] = {"incident": "incidents", "schedule": "schedule", "alert": "alerts"}
NONE = Signal("schedule", False, "0.0 hours")


def seen(*ids: str, state: dict[str, Any] | None = None) -> Signal:
    return incidents_signal(
        [OpenIncident(one, "critical", "margin", 1) for one in ids], "warning", state or {}
    )


def look(engine: Engine, *ids: str, now: int, guards: RunGuards = GUARDS) -> str | None:
    """Evaluate the trigger of incidents; the job's id."""
    with write(engine) as connection:
        state = evaluation_log.recall(connection, "m", "incidents").state
        signal = seen(*ids, state=dict(state))
        return settle(
            connection,
            "m",
            signal,
            guards,
            now_us=now,
            command="outrider retrain m",
            targets=HOOK,
        )[1]


def end(engine: Engine, job: str, status: str, now: int) -> None:
    with write(engine) as connection:
        jobs.finish(connection, begun(connection, job), status, {}, now_us=now)


def logged(engine: Engine, trigger: str | None = None) -> list[EvaluationRow]:
    with engine.connect() as connection:
        return evaluation_log.newest_evaluations(connection, "m", trigger=trigger, limit=1_000)


def events(engine: Engine) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT payload FROM outbox ORDER BY created_us")).all()
    return [json.loads(row[0]) for row in rows]


def test_a_comparison_of_all_versions_is_no_automatic_run(engine: Engine) -> None:
    with write(engine) as connection:
        params = {"trigger": jobs.ROLLING, "label_seq": 1}
        job = jobs.add(connection, model="m", kind="retrain", params=params, now_us=1)
    assert look(engine, "inc_1", now=2) is None  # one job of a model at a time
    end(engine, job, "refused", 3)
    with engine.connect() as connection:
        found = read_history(connection, "m", now_us=4)
    assert (found.last_us, found.today, found.failed, found.newest_us) == (None, 0, 0, None)
    assert look(engine, "inc_1", now=4) is not None


def test_repetitions_are_counted_to_what_they_repeat(engine: Engine) -> None:
    clock = 0.0
    repeated = RepeatedEvaluations(again_s=60.0, scored_again_s=10.0, timer=lambda: clock)
    below = Evaluation("incidents", "quiet", "below", "none is open", 0.0)
    scored = replace(below, why="none of two is open", score=2.0)
    fired = Evaluation("incidents", "fired", "fired", "one is open", 1.0)

    def evaluate(found: Evaluation) -> None:
        if not repeated.spares("m", found):
            with write(engine) as connection:
                repeated.tell(connection, "m", found, now_us=1)
                evaluation_log.remember(connection, "m", found, None, now_us=1)

    for found in (*[below] * 6, scored, fired, fired, below, below):
        evaluate(found)
    assert [(row.outcome, row.times) for row in logged(engine)] == [
        ("quiet", 1), ("fired", 1), ("fired", 1), ("quiet", 7),
    ]  # fmt: skip
    clock = 11.0
    evaluate(below)
    assert logged(engine)[0].times == 1
    evaluate(scored)
    assert (logged(engine)[0].times, logged(engine)[0].score) == (4, 2.0)
    clock = 80.0
    evaluate(scored)
    assert logged(engine)[0].times == 5
    with engine.connect() as connection:
        ((_, _, counts),) = evaluation_log.count_outcomes(connection)
    assert counts == {"fired": 2, "suggested": 0, "held": 0, "quiet": 12}


def test_a_job_says_why_it_was_started(engine: Engine) -> None:
    job = look(engine, "inc_1", now=1)
    assert job is not None
    with engine.connect() as connection:
        found = jobs.get(connection, job)
    assert (found.kind, found.status) == ("retrain", "queued")
    assert found.params == {
        "trigger": "incidents", "why": "incident inc_1 of margin (critical) is open", "score": 1.0,
        "threshold": 1.0, "standing": 1, "upto_seq": None,
    }  # fmt: skip
    (row,) = logged(engine)
    assert (row.outcome, row.job, row.inputs) == ("fired", job, {"standing": 1})


def test_an_incident_starts_one_run_across_restarts(engine: Engine) -> None:
    job = look(engine, "inc_1", now=1)
    assert job is not None
    assert look(engine, "inc_1", now=2) is None, "the job is open"
    end(engine, job, "done", 3)
    assert look(engine, "inc_1", now=DAY_US) is None, "nothing new"
    assert look(engine, "inc_1", "inc_2", now=DAY_US + 1) is not None


def test_a_cause_that_a_guard_held_fires_when_the_guard_ends(engine: Engine) -> None:
    job = look(engine, "inc_1", now=1)
    assert job is not None
    assert look(engine, "inc_1", "inc_2", now=2) is None
    end(engine, job, "refused", 3)
    assert look(engine, "inc_1", "inc_2", now=4) is None
    assert [row.reason for row in logged(engine)] == ["cooldown", "open_run", "fired"]
    assert "held: cooldown until" in logged(engine)[0].why
    assert look(engine, "inc_1", "inc_2", now=2 + MINUTE) is not None


def run(engine: Engine, number: int, now: int, status: str) -> str | None:
    job = look(engine, *(f"inc_{n}" for n in range(number + 1)), now=now)
    if job is not None:
        end(engine, job, status, now)
    return job


def test_the_breaker_tries_one_run_a_day_after_failures_in_a_row(engine: Engine) -> None:
    for number, status in enumerate(("refused", "failed", "refused")):
        assert run(engine, number, 1 + number * MINUTE, status) is not None
    last = 1 + 2 * MINUTE
    assert run(engine, 3, last + 10 * MINUTE, "refused") is None
    assert logged(engine)[0].reason == "breaker"
    assert "the last 3 automatic runs were refused or failed" in logged(engine)[0].why
    assert run(engine, 3, last + DAY_US, "refused") is not None
    assert run(engine, 4, last + DAY_US + 10 * MINUTE, "refused") is None


@pytest.mark.parametrize("way", ["promotion", "person"])
def test_a_promotion_or_a_person_ends_the_breaker(engine: Engine, way: str) -> None:
    for number in range(3):
        run(engine, number, 1 + number * MINUTE, "refused")
    assert run(engine, 3, 5 * MINUTE, "refused") is None
    with write(engine) as connection:
        if way == "promotion":
            note_change(
                connection, model="m", version="2", replaced="1", action="promoted", by="ann", reason="",
                verdict=None, now_us=6 * MINUTE,
            )  # fmt: skip
        else:
            job = jobs.add(connection, model="m", kind="retrain", params={}, now_us=6 * MINUTE)
            jobs.finish(connection, begun(connection, job), "refused", {}, now_us=6 * MINUTE)
    assert run(engine, 3, 7 * MINUTE, "refused") is not None


def test_a_run_whose_candidate_was_made_elsewhere_ends_as_that_does(engine: Engine) -> None:
    for number in range(3):
        job = run(engine, number, 1 + number * MINUTE, "done")  # its dataset version was made
        with write(engine) as connection:
            params = {"candidate": str(number), "job": job}
            answer = jobs.add(
                connection, model="m", kind="retrain", params=params, now_us=2 + number * MINUTE
            )
            jobs.finish(connection, begun(connection, answer), "refused", {}, now_us=3 + number * MINUTE)
    with engine.connect() as connection:
        assert read_history(connection, "m", now_us=5 * MINUTE).failed == 3
    assert run(engine, 3, 5 * MINUTE, "done") is None


def test_the_budget_counts_jobs_of_all_triggers(engine: Engine) -> None:
    with write(engine) as connection:
        for number in range(4):
            params = {"trigger": ("labelled_flags", "alerts")[number % 2]}
            job = jobs.add(connection, model="m", kind="retrain", params=params, now_us=number)
            jobs.finish(connection, begun(connection, job), "done", {}, now_us=number)
    assert look(engine, "inc_1", now=DAY_US - 1) is None
    assert logged(engine)[0].reason == "budget"


def test_a_suggestion_is_an_event_told_once_while_it_stands(engine: Engine) -> None:
    for now in range(1, 6):
        assert look(engine, "inc_1", *(["inc_2"] if now > 3 else []), now=now, guards=SUGGEST) is None
    (event,) = events(engine)
    assert event["type"] == "retrain.suggested"
    assert event["data"] == {
        "model": "m", "trigger": "incidents", "why": "incident inc_1 of margin (critical) is open",
        "score": 1.0, "threshold": 1.0, "command": "outrider retrain m",
    }  # fmt: skip
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM job")).scalar() == 0
        (stands,) = evaluation_log.list_suggestions(connection, "m", ["incidents"])
        assert evaluation_log.list_suggestions(connection, "m", ["alerts"]) == []
    assert (stands.suggested_us, stands.why) == (1, event["data"]["why"])
    assert logged(engine)[0].reason == "suggested"


def test_a_suggestion_ends_with_its_cause_or_a_retraining(engine: Engine) -> None:
    look(engine, "inc_1", now=1, guards=SUGGEST)
    look(engine, now=2, guards=SUGGEST)
    with engine.connect() as connection:
        assert evaluation_log.list_suggestions(connection, "m", ["incidents"]) == []
    look(engine, "inc_2", now=3, guards=SUGGEST)
    with write(engine) as connection:
        job = jobs.add(connection, model="m", kind="retrain", params={}, now_us=4)
        assert evaluation_log.list_suggestions(connection, "m", ["incidents"]) == []
        jobs.finish(connection, begun(connection, job), "done", {}, now_us=4)
    look(engine, "inc_2", "inc_3", now=5, guards=SUGGEST)
    assert len(events(engine)) == 3


def test_equal_outcomes_in_a_row_are_one_row_of_the_log(engine: Engine) -> None:
    for now in range(1, 51):
        look(engine, now=now)
    (row,) = logged(engine)
    assert (row.outcome, row.since_us, row.until_us, row.times) == ("quiet", 1, 50, 50)
    with write(engine) as connection:
        evaluation_log.remember(
            connection, "m", Evaluation("incidents", "quiet", "below", ""), None, now_us=60, times=7
        )
    assert logged(engine)[0].times == 57


def test_a_flood_of_invented_alerts_leaves_a_bounded_log_and_table(engine: Engine) -> None:
    with write(engine) as connection:
        for number in range(3 * MOST_KEPT):
            reason = ("not_listed", "resolved")[number % 2]
            unused = Evaluation("alerts", "quiet", reason, f"alert {number}")
            evaluation_log.remember(connection, "m", unused, None, now_us=number)
            key = AlertKey("m", f"{number:x}", 1)
            alerts.note_firing(connection, key, name="Drift", now_us=number)
    look(engine, "inc_1", now=1)
    assert len(logged(engine, "alerts")) == MOST_KEPT
    with engine.connect() as connection:
        counted = {
            trigger: counts["quiet"] for _, trigger, counts in evaluation_log.count_outcomes(connection)
        }
    assert counted["alerts"] == 3 * MOST_KEPT
    assert [row.outcome for row in logged(engine, "incidents")] == ["fired"], "of others nothing was lost"
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM alert")).scalar() == alerts.MOST_ALERTS
        newest = alerts.firing_alerts(connection, "m", ["Drift"], now_us=3 * MOST_KEPT)
    assert newest[-1].id == f"{3 * MOST_KEPT - 1:x}@1"


def test_alerts_fire_until_they_are_resolved_or_not_heard_of_for_a_day(engine: Engine) -> None:
    key = AlertKey("m", "ab", 5)

    def firing(now: int) -> list[str]:
        with engine.connect() as connection:
            return [one.id for one in alerts.firing_alerts(connection, "m", ["Drift"], now_us=now)]

    with write(engine) as connection:
        alerts.note_firing(connection, key, name="Drift", now_us=10)
        alerts.note_firing(connection, key, name="Drift", now_us=20)
        alerts.note_firing(connection, AlertKey("m", "cd", 5), name="Other", now_us=20)
    assert firing(30) == ["ab@5"]
    assert firing(20 + DAY_US) == []
    with write(engine) as connection:
        alerts.note_resolved(connection, key, now_us=40)
        alerts.note_firing(connection, key, name="Drift", now_us=45)
    assert firing(50) == [], "a late repeat does not begin it anew"


def test_a_message_is_taken_once(engine: Engine) -> None:
    with write(engine) as connection:
        assert alerts.take_message(connection, "msg_1", now_us=1)
        assert not alerts.take_message(connection, "msg_1", now_us=2)
        assert alerts.take_message(connection, "msg_2", now_us=2 + alerts.MESSAGES_US)
        kept = connection.execute(text("SELECT id FROM taken_message")).all()
    assert kept == [("msg_2",)], "ids of stale signatures are not kept"


def test_a_person_s_retraining_is_in_the_log(engine: Engine) -> None:
    with write(engine) as connection:
        note_manual(connection, "m", by="ann", job="job_1", now_us=1)
    (row,) = logged(engine)
    assert (row.trigger, row.outcome, row.why, row.job) == ("manual", "fired", "asked for by ann", "job_1")


def test_counts_of_outcomes_outlive_the_log(engine: Engine) -> None:
    for now in range(1, 11):
        look(engine, now=now)
    look(engine, "inc_1", now=11)
    with write(engine) as connection:
        evaluation_log.forget_others(connection, "m", [], suggests=False)
        ((model, trigger, counts),) = evaluation_log.count_outcomes(connection)
        assert evaluation_log.recall(connection, "m", "incidents").state == {}
    assert (model, trigger, counts) == (
        "m", "incidents", {"fired": 1, "suggested": 0, "held": 0, "quiet": 10},
    )  # fmt: skip


def test_a_preview_changes_nothing_and_says_what_would_be(engine: Engine) -> None:
    with engine.connect() as connection:
        signal, found, is_changed = preview(
            connection, "m", "incidents", lambda state: seen("inc_1", state=dict(state)), GUARDS, now_us=1
        )
    assert (signal.is_due, found.outcome, is_changed) == (True, "fired", True)
    assert logged(engine) == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["incident", "schedule", "alert", "end", "person", "restart", "suggest"]),
        st.sampled_from(["done", "refused", "failed", "undecided"]),
        st.integers(min_value=-2 * 3600, max_value=10 * 3600),
    ),
    max_size=40,
)


@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, budget=st.integers(1, 4), failures=st.integers(0, 3))
def test_never_two_open_runs_nor_more_than_the_budget(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str, int]],
    budget: int,
    failures: int,
) -> None:
    """Whatever comes in which order, by a clock that is set forward and back."""
    folder: Path = tmp_path_factory.mktemp("firing")
    engine = migrated(folder / "state.db")
    guards = RunGuards(cooldown_s=600, daily_budget=budget, failures=failures)
    now = 100 * DAY_US
    for number, (what, status, seconds) in enumerate(steps):
        now += seconds * 1_000_000
        with write(engine) as connection:
            if what in CAUSES:
                signal = Signal(CAUSES[what], True, "due", acted={"at": number})
                settle(connection, "m", signal, guards, now_us=now)
            elif what == "end":
                connection.execute(
                    text("UPDATE job SET status = :status WHERE status = 'queued'"), {"status": status}
                )
            elif what == "person":
                opened = read_history(connection, "m", now_us=now).is_open
                if not opened:
                    jobs.add(connection, model="m", kind="retrain", params={}, now_us=now)
            elif what == "suggest":
                off = RunGuards(cooldown_s=600, daily_budget=budget, failures=failures, is_automatic=False)
                settle(connection, "m", Signal("behavior", True, "due"), off, now_us=now)
            open_ = connection.execute(text("SELECT count(*) FROM job WHERE status = 'queued'")).scalar()
            assert open_ is not None
            assert open_ <= 1
    with engine.connect() as connection:
        made = connection.execute(
            text("SELECT created_us FROM job WHERE json_extract(params, '$.trigger') IS NOT NULL")
        )
        at = sorted(row[0] for row in made)
    assert all(sum(begin <= one < begin + DAY_US for one in at) <= budget for begin in at)
    engine.dispose()
