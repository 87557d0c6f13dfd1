"""Triggers of retraining in the trainer, over a real worker's database: each fires, and says why not."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from outrider.behavioral_tests import Outcome
from outrider.dataops.alarms.stored_incidents import list_incidents
from outrider.dataops.improvement import jobs, suite_outcomes
from outrider.dataops.models.lineage import add_edges
from outrider.dataops.outbox import EVENTS, WebhookTarget
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import improvement_tables
from outrider.dataops.state.database import write
from outrider.dataops.triggers import alerts, evaluation_log
from outrider.dataops.triggers.alerts import AlertKey
from outrider.dataops.triggers.evaluation_log import EvaluationRow
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.triggers import Triggers
from tests.end_to_end.service import CONFIG, write_project
from tests.running_jobs import begun

from .web.sample import add
from .workbench import Workbench, workbench

HOUR_US = 3_600_000_000
OUTCOME = Outcome(
    suite="test_toy", name="test_x", revision="1", kind="MFT", capability="basics", description="",
    cases=10, failures=0, not_applicable=0, tolerance=0.1, rate=0.0, low=0.0, high=0.3, examples=(),
)  # fmt: skip


@dataclass
class Trained:
    """A model with triggers, and the thread that evaluates them, stepped by hand."""

    bench: Workbench
    late_us: int = 0
    timer: float = 0.0
    at: int = 0
    triggers: Triggers = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        bench = self.bench
        objects = LocalObjects(bench.settings.data_folder / "objects")
        targets = (WebhookTarget("http://hook", EVENTS),)
        context = JobContext(bench.settings, bench.engine, objects, bench.journal, targets)
        self.triggers = Triggers(context, now=lambda: self.now, timer=lambda: self.timer, rest_by_cost=0.0)

    @property
    def now(self) -> int:
        return self.bench.now_us + self.late_us

    def serve(self, high: int, rows: int, *, device: str = "a", after_s: float = 60.0) -> None:
        """Records of which so many are flagged by the critical assertion ``too_high``."""
        self.bench.feed(
            [
                {
                    "id": f"r{self.at + n}", "entity": f"e{n % 40}", "attrs": {"device": device},
                    "inputs": {"x": 0.95 if n < high else 0.8}, "outputs": {"label": 1, "score": 0.9},
                }
                for n in range(rows)
            ],
            after_s=after_s,
        )  # fmt: skip
        self.at += rows
        self.bench.work()

    def look(self, *, after_s: float = 0.0) -> None:
        self.late_us += int(after_s * 1e6)
        self.timer += max(after_s, 1.0)
        self.triggers.look()

    def end(self, status: str = "done") -> None:
        with write(self.bench.engine) as connection:
            for job in jobs.recent(connection, model="toy"):
                if job.status == "queued":
                    jobs.finish(connection, begun(connection, job.id), status, {}, now_us=self.now)

    def fired(self) -> list[str]:
        """Triggers of the jobs, oldest first."""
        with self.bench.engine.connect() as connection:
            return [job.params["trigger"] for job in jobs.recent(connection, model="toy")][::-1]

    def last(self, trigger: str) -> EvaluationRow:
        with self.bench.engine.connect() as connection:
            return evaluation_log.last_evaluations(connection, "toy")[trigger]

    def events(self, name: str) -> list[dict[str, Any]]:
        rows = self.bench.rows("SELECT payload FROM outbox WHERE event = :e ORDER BY created_us", e=name)
        return [json.loads(row[0])["data"] for row in rows]


@contextmanager
def trained(folder: Path, triggers: str, *, retrain: str = "cooldown_s = 0\n") -> Iterator[Trained]:
    section = f"[models.toy.retrain]\nenabled = true\n{retrain}[models.toy.retrain.triggers]\n{triggers}\n"
    config = f"{CONFIG}\n{section}"
    with workbench(write_project(folder, config=config)) as bench:
        yield Trained(bench)


RATES = 'flag_rates = [{ assertion = "too_high", start = 0.1, rearm = 0.05, hours = 1 }]'


@pytest.mark.costly("minutes of flags pass")
def test_a_flag_rate_above_its_start_starts_one_run_until_it_fell(tmp_path: Path) -> None:
    with trained(tmp_path, RATES) as made:
        made.serve(1, 1)
        made.look()
        assert made.last("flag_rates").reason == "too_few_records"
        made.serve(5, 199)
        made.look()
        assert made.last("flag_rates").reason == "too_short"
        for _ in range(15):
            made.serve(0, 20)
        made.look()
        assert (made.last("flag_rates").outcome, made.last("flag_rates").reason) == ("quiet", "below")
        for _ in range(10):
            made.serve(20, 40)
        made.look()
        assert made.fired() == ["flag_rates"]
        found = made.last("flag_rates")
        assert found.inputs["flags"] == 206
        assert found.inputs["records"] == 900
        assert found.score == pytest.approx(206 / 900)
        made.end("refused")
        for high in (0, 60, 10, 70):
            made.serve(high, 100)
            made.restart()
            made.look()
        assert made.fired() == ["flag_rates"], "it hovers, over restarts"
        made.serve(0, 500, after_s=2 * 3600)
        made.look()
        for _ in range(20):
            made.serve(20, 40)
        made.look()
        assert made.fired() == ["flag_rates", "flag_rates"]


def test_an_open_incident_starts_one_run(tmp_path: Path) -> None:
    with trained(tmp_path, 'incidents = "critical"') as made:
        made.serve(0, 5)
        made.look()
        assert made.last("incidents").why == "no incident of level critical or above is open"
        made.serve(1, 5)
        made.look()
        made.end()
        made.look(after_s=60)
        made.restart()
        made.look(after_s=60)
        assert made.fired() == ["incidents"]
        made.serve(1, 5, device="b")
        made.look()
        assert made.fired() == ["incidents"], "another slice of a critical assertion is the same incident"
        texts = [row[0] for row in made.bench.rows("SELECT why || inputs FROM trigger_evaluation")]
        assert not any('"b"' in text or "r5" in text for text in texts), "no slice and no record"


def test_a_muted_incident_starts_nothing_and_no_other_model_s(tmp_path: Path) -> None:
    with trained(tmp_path, 'incidents = "warning"') as made:
        made.serve(1, 5)
        made.bench.execute("UPDATE incident SET status = 'muted'")
        made.look()
        made.bench.execute("UPDATE incident SET status = 'open', model = ''")
        made.look()
        assert made.fired() == []


def keep(made: Trained, *, failures: int) -> None:
    outcome = replace(OUTCOME, failures=failures, rate=failures / 10)
    with write(made.bench.engine) as connection:
        suite_outcomes.keep(connection, "toy", "1", [outcome], source="pytest", now_us=made.now)


def test_a_behavioral_regression_starts_one_run(tmp_path: Path) -> None:
    with trained(tmp_path, "behavior = true") as made:
        made.serve(0, 5)
        keep(made, failures=9)
        made.look()
        assert made.fired() == [], "it never passed"
        keep(made, failures=0)
        made.look(after_s=60)
        assert made.fired() == []
        keep(made, failures=4)
        made.look(after_s=60)
        assert made.fired() == ["behavior"]
        assert made.last("behavior").why.startswith("test_x (test_toy) fails in 40.0% of its cases")
        made.end()
        keep(made, failures=5)
        made.look(after_s=60)
        assert made.fired() == ["behavior"]
        keep(made, failures=0)
        keep(made, failures=5)
        made.look(after_s=60)
        assert made.fired() == ["behavior", "behavior"]


def test_corrected_rows_start_a_run_once_the_champion_learned_from_others(tmp_path: Path) -> None:
    with trained(tmp_path, "corrected = 5") as made:
        made.serve(0, 5)
        made.look()
        assert made.last("corrected").reason == "unknown"
        with write(made.bench.engine) as connection:
            add_edges(connection, "model", "toy@1", [("dataset", "toy-flagged@1", "fresh")], now_us=1)
            for number, relabelled in ((1, 0), (2, 3), (3, 2)):
                changes = {"added": 9, "relabelled": relabelled, "removed": number // 3}
                add(
                    connection, improvement_tables.DatasetVersion, dataset="toy-flagged", number=number,
                    model="toy", digest="", rows=9, manifest={"changes": changes}, created_us=number,
                    arrow_schema=b"", state=b"",
                )  # fmt: skip
        made.look()
        assert made.fired() == ["corrected"]
        assert made.last("corrected").why.startswith("6 rows were corrected or withdrawn since toy-flagged@1")
        made.end("refused")
        made.look(after_s=60)
        assert made.fired() == ["corrected"]


def test_a_schedule_starts_a_run_and_a_clock_a_day_ahead_one_more_at_most(tmp_path: Path) -> None:
    with trained(tmp_path, "every_hours = 6") as made:
        made.serve(0, 5)
        made.look()
        made.look(after_s=5 * 3600)
        assert made.fired() == []
        made.restart()
        made.look(after_s=3600)
        assert made.fired() == ["schedule"]
        made.end()
        for _ in range(20):
            made.look(after_s=60)
        made.late_us += 24 * HOUR_US
        for _ in range(20):
            made.look(after_s=60)
            made.end()
        made.late_us -= 24 * HOUR_US
        for _ in range(20):
            made.look(after_s=60)
            made.end()
        assert made.fired() == ["schedule", "schedule"]


def test_an_alert_starts_one_run_unless_it_was_resolved(tmp_path: Path) -> None:
    with trained(tmp_path, 'alerts = ["Drift"]') as made:
        made.serve(0, 5)
        for mark, name in (("ab", "Drift"), ("cd", "Other")):
            with write(made.bench.engine) as connection:
                alerts.note_firing(connection, AlertKey("toy", mark, 1), name=name, now_us=made.now)
        made.look()
        made.end()
        made.look(after_s=60)
        assert made.fired() == ["alerts"]
        with write(made.bench.engine) as connection:
            key = AlertKey("toy", "ef", 1)
            alerts.note_firing(connection, key, name="Drift", now_us=made.now)
            alerts.note_resolved(connection, key, now_us=made.now)
        made.look(after_s=60)
        assert made.fired() == ["alerts"]


def test_labels_still_start_a_run_in_the_transaction_that_commits_them(tmp_path: Path) -> None:
    with trained(tmp_path, "", retrain="labelled_flags = 3\n") as made:
        made.serve(5, 5)
        made.bench.label({"r0": 1, "r1": 0})
        made.bench.work()
        assert made.last("labelled_flags").why == "2 labels are not in the dataset; 3 start a run"
        for _ in range(3):  # nothing new to count
            made.serve(1, 1)
        made.bench.label({"r2": 0})
        made.bench.work()
        assert made.fired() == ["labelled_flags"]
        counted = "SELECT fired, quiet FROM trigger_state WHERE trigger = 'labelled_flags'"
        ((fired, quiet),) = made.bench.rows(counted)
        assert fired == 1
        assert quiet >= 4
        made.bench.label({"r3": 0})
        made.bench.work()
        assert made.last("labelled_flags").reason == "open_run"
        assert made.fired() == ["labelled_flags"]


def test_with_suggest_nothing_starts_and_one_event_says_so(tmp_path: Path) -> None:
    retrain = 'mode = "suggest"\nlabelled_flags = 3\n'
    with trained(tmp_path, 'incidents = "critical"', retrain=retrain) as made:
        made.serve(5, 5)
        made.bench.label({"r0": 1, "r1": 0, "r2": 0})
        made.bench.work()
        for _ in range(3):
            made.look(after_s=60)
            made.restart()
        made.bench.label({"r3": 1})
        made.bench.work()
        made.look(after_s=60)
        assert made.fired() == []
        told = [(event["trigger"], event["command"]) for event in made.events("retrain.suggested")]
        command = "outrider dataset commit toy"
        assert sorted(told) == [("incidents", command), ("labelled_flags", command)]


def test_one_run_at_a_time_and_held_causes_fire_later(tmp_path: Path) -> None:
    retrain = "cooldown_s = 600\ndaily_budget = 2\n"
    with trained(tmp_path, f'incidents = "critical"\nevery_hours = 1\n{RATES}', retrain=retrain) as made:
        made.serve(0, 5)
        made.look()
        made.serve(300, 400)
        made.look(after_s=3700)
        assert len(made.fired()) == 1
        reasons = {made.last(name).reason for name in ("incidents", "schedule")}
        assert "open_run" in reasons
        made.end()
        made.look(after_s=10)
        assert "cooldown" in {made.last(name).reason for name in ("incidents", "schedule")}
        made.look(after_s=600)
        made.end()
        made.look(after_s=3700)
        assert sorted(made.fired()) == ["incidents", "schedule"]
        assert made.last("schedule").reason == "budget"


def test_at_rest_the_log_is_told_once_a_minute_and_counts_every_look(tmp_path: Path) -> None:
    with trained(tmp_path, "behavior = true") as made:
        made.serve(0, 5)
        for _ in range(130):
            made.look(after_s=1)
        found = made.last("behavior")
        assert 120 <= found.times <= 130
        assert len(made.bench.rows("SELECT 1 FROM trigger_evaluation WHERE trigger = 'behavior'")) == 1
        before = made.bench.rows("SELECT * FROM trigger_evaluation")
        made.look(after_s=1)
        assert made.bench.rows("SELECT * FROM trigger_evaluation") == before


def test_a_trigger_that_raises_holds_up_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with trained(tmp_path, 'incidents = "critical"\nbehavior = true') as made:
        made.serve(1, 5)
        made.bench.execute("UPDATE suite_outcome SET passed_us = 1, status = 'failed', rate = 'odd'")
        made.bench.execute(
            "INSERT INTO suite_outcome (model, version, suite, test, revision, kind, capability, description,"
            " status, cases, failures, not_applicable, tolerance, rate, low, high, source, at_us, outcome,"
            " passed_us) VALUES ('toy', '1', 's', 't', '', '', '', '', 'failed', 1, 1, 0, 0, 'odd', 0, 1, '',"
            " 1, '{}', 1)"
        )
        made.look()
        assert made.fired() == ["incidents"]
        assert "toy: trigger behavior" in caplog.text


def test_what_a_trigger_remembered_goes_once_it_is_not_set(tmp_path: Path) -> None:
    with trained(tmp_path, 'incidents = "critical"', retrain='mode = "suggest"\n') as made:
        made.serve(1, 5)
        made.look()
        assert made.bench.rows("SELECT count(*) FROM trigger_state WHERE suggested_us > 0") == [(1,)]
    with trained(tmp_path, "") as made:
        made.look()
        left = "SELECT state, suggested_us, suggested FROM trigger_state WHERE trigger = 'incidents'"
        assert made.bench.rows(left) == [("{}", None, 1)]


SENDER = '''
from outrider.assertions import assertion


@assertion(level="critical")
def square_feet(batch):
    """An area that no home of these has: in square feet."""
    return batch.column("inputs.x") > 0.9
'''


def test_what_a_sender_has_to_mend_starts_no_retraining_by_itself(tmp_path: Path) -> None:
    section = "enabled = true\ncooldown_s = 0\nlabelled_flags = 3\n[models.toy.retrain.triggers]\n"
    config = f'{CONFIG}\n[models.toy.retrain]\n{section}incidents = "warning"\n'
    with workbench(write_project(tmp_path, config=config, checks=SENDER)) as bench:
        made = Trained(bench)
        made.serve(20, 40)
        with bench.engine.connect() as connection:
            (incident,) = list_incidents(connection, now_us=made.now, model="toy")
        assert (incident.level, incident.next_step) == ("critical", "check what sends x for a")
        made.look()
        assert made.fired() == []
        assert made.last("incidents").why == "no incident of level warning or above is open"
        bench.label({f"r{n}": 1 for n in range(3)})
        bench.work()
        assert made.fired() == ["labelled_flags"]
