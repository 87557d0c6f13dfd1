"""Watches over new champions: a real worker answers with both, labels come, a rollback is proposed."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from outrider.dataops.improvement import watches
from outrider.dataops.improvement.watches import WatchRow
from outrider.dataops.models import registry as models
from outrider.dataops.outbox import EVENTS, WebhookTarget
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.state.disabled_versions import leave_out, take_back
from outrider.monitor.queries.watches import watch_sentence
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.watches import Watches
from tests.end_to_end.service import CONFIG, write_project

from .workbench import Workbench, workbench

CHECKS = '''
from outrider.assertions import assertion


@assertion
def unsure(batch):
    """Score below 0.55."""
    return batch.column("outputs.score") < 0.55
'''
HOUR_US = 3_600_000_000


@dataclass
class Served:
    """A model with versions in service, and the thread that watches it, stepped by hand."""

    bench: Workbench
    at: int = 0
    targets: Sequence[WebhookTarget] = (WebhookTarget("http://hook", EVENTS),)
    late_us: int = 0
    watch: Watches = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        bench = self.bench
        objects = LocalObjects(bench.settings.data_folder / "objects")
        context = JobContext(bench.settings, bench.engine, objects, bench.journal, self.targets)
        self.watch = Watches(context, now=lambda: bench.now_us + self.late_us, rest_by_cost=0.0)

    def reconfigure(self, watch: str) -> None:
        """As after a reload: another section ``watch`` of the model."""
        head = self.bench.config.read_text(encoding="utf-8").partition("[models.toy.watch]")[0]
        self.bench.config.write_text(f"{head}[models.toy.watch]\n{watch}\n", encoding="utf-8")
        self.bench.settings = load_settings(self.bench.config)
        self.restart()

    def promote(self, version: str, records: int = 10_000, *, is_seen: bool = True) -> None:
        """Promote for a person; the worker sees it at once, or not yet."""
        self.bench.now_us += 1
        with write(self.bench.engine) as connection:
            before = models.champion(connection, "toy")
            found = models.promote(connection, "toy", version, now_us=self.bench.now_us, reason="", by="ann")
            watches.follow_promotion(connection, before, found, records=records, now_us=self.bench.now_us)
        if is_seen:
            self.bench.worker._refresh(force=True)
            self.bench.work()

    def add(self, version: str) -> None:
        self.bench.execute(
            "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us, note)"
            " SELECT model, :version, 'challenger', digest, source, created_us, changed_us, ''"
            " FROM model_version LIMIT 1",
            version=version,
        )

    def serve(
        self,
        wrong: Sequence[bool],
        *,
        version: str = "2",
        labels: bool = True,
        score: Sequence[float] = (),
        former: Sequence[float] = (),
        entity: Sequence[str] = (),
    ) -> None:
        """Records of an hour; production is wrong on some, the replica of the former champion on none.

        Parameters
        ----------
        score, former
            Scores of production, and of the former champion.
        """
        ids = [f"r{self.at + n}" for n in range(len(wrong))]
        self.at += len(wrong)
        self.bench.feed(
            [
                {
                    "id": name,
                    "entity": entity[n] if entity else f"e{n % 40}",
                    "version": version,
                    "inputs": {"x": former[n] if former else 0.8},
                    "outputs": {"label": 0 if is_wrong else 1, "score": score[n] if score else 0.8},
                }
                for n, (name, is_wrong) in enumerate(zip(ids, wrong, strict=True))
            ],
            after_s=3600,
        )
        self.bench.work()
        if labels:
            self.bench.label(dict.fromkeys(ids, 1))
            self.bench.work()

    def newest(self) -> WatchRow:
        with self.bench.engine.connect() as connection:
            return watches.newest(connection, "toy")[0]

    def status(self) -> dict[str, str]:
        return dict(self.bench.rows("SELECT version, status FROM model_version"))

    def events(self, name: str) -> list[dict[str, Any]]:
        rows = self.bench.rows("SELECT payload FROM outbox WHERE event = :e ORDER BY created_us", e=name)
        return [json.loads(row[0])["data"] for row in rows]


@contextmanager
def served(folder: Path, settings: str = "") -> Iterator[Served]:
    config = CONFIG + f"\n[models.toy.watch]\n{settings}\n"
    with workbench(write_project(folder, config=config, checks=CHECKS)) as bench:
        bench.feed([{"id": "first", "inputs": {"x": 0.1}}])
        bench.work()
        made = Served(bench)
        made.add("2")
        bench.worker._refresh(force=True)
        yield made


def share(part: float, *, rows: int = 80, seed: int = 0) -> list[bool]:
    """Wrong answers of a share of the records, spread over entities."""
    found: list[bool] = (np.random.default_rng(seed).random(rows) < part).tolist()
    return found


def test_a_worse_champion_is_proposed_for_rollback_by_labels(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        assert made.status() == {"1": "former", "2": "champion"}
        for seed in range(6):
            made.serve(share(0.25, seed=seed))
            made.watch.look()
        found = made.newest()
        assert found.is_running
        assert found.proposed_us is not None
        assert found.records == 480
        (event,) = made.events("rollback.proposed")
        assert (event["version"], event["former"], event["rolls_back"]) == ("2", "1", False)
        assert "proven to be worse" in event["reasons"][0]
        assert made.status() == {"1": "former", "2": "champion"}
        assert found.findings["labels"]["champion"] + found.findings["labels"]["only_champion"] == 480
        assert [look["records"] for look in found.findings["labels_looks"]] == [80 * n for n in range(1, 7)]
        made.late_us = 168 * HOUR_US
        made.watch.look()
        assert (made.newest().outcome, made.status()["1"]) == ("proposed", "retired")


def test_an_equal_champion_is_kept_when_the_time_is_over(tmp_path: Path) -> None:
    with served(tmp_path, "hours = 1000") as made:
        made.promote("2")
        for _ in range(3):
            made.serve(share(0.0))
            made.watch.look()
        made.late_us = 1000 * HOUR_US
        made.watch.look()
        found = made.newest()
        assert (found.outcome, found.proposed_us, made.events("rollback.proposed")) == ("kept", None, [])
        assert made.status() == {"1": "retired", "2": "champion"}


@pytest.mark.costly("needs as many records as a promise is about")
def test_a_watch_rolls_back_by_itself_once_and_nothing_returns(tmp_path: Path) -> None:
    with served(tmp_path, "auto_rollback = true") as made:
        made.promote("2")
        for seed in range(6):
            made.serve(share(0.3, seed=seed))
            made.restart()  # in the middle: what is known is stored
            made.bench.restart()
            made.watch.look()
        assert made.status() == {"1": "champion", "2": "retired"}
        found = made.newest()
        assert (found.outcome, found.findings["by"]) == ("rolled_back", "watch")
        assert len(made.events("rollback.proposed")) == len(made.events("model.rolled_back")) == 1
        assert "the watch over version 2: of " in made.events("model.rolled_back")[0]["reason"]
        made.bench.worker._refresh(force=True)
        made.serve(share(0.0), version="1")
        for _ in range(3):
            made.watch.look()
        assert made.bench.rows("SELECT count(*) FROM watch") == [(1,)]
        with made.bench.engine.connect() as connection:
            assert watches.was_rolled_back(connection, "toy", "2")
            assert not watches.was_rolled_back(connection, "toy", "1")


def test_flags_alone_prove_it_too(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        for seed in range(6):
            unsure = share(0.3, seed=seed)
            made.serve(share(0.0), labels=False, score=[0.51 if one else 0.8 for one in unsure])
            made.watch.look()
        found = made.newest()
        assert found.proposed_us is not None
        assert "proven to be more" in made.events("rollback.proposed")[0]["reasons"][0]
        assert found.findings["labels"]["records"] == 0


def test_a_second_promotion_ends_the_watch_and_begins_another(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.add("3")
        made.promote("2")
        made.serve(share(0.0))
        made.promote("3")
        assert made.status() == {"1": "retired", "2": "former", "3": "champion"}
        made.serve(share(0.0), version="3")
        made.watch.look()
        with made.bench.engine.connect() as connection:
            second, first = watches.newest(connection, "toy")
        assert (first.version, first.outcome) == ("2", "superseded")
        assert (second.version, second.former, second.records) == ("3", "2", 80)


def test_a_person_who_promotes_the_former_champion_rolls_back(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        made.serve(share(0.3))
        made.promote("1")
        made.watch.look()
        assert made.status() == {"1": "champion", "2": "retired"}
        assert (made.newest().outcome, made.bench.rows("SELECT count(*) FROM watch")) == (
            "rolled_back",
            [(1,)],
        )
        with made.bench.engine.connect() as connection:
            assert not watches.was_rolled_back(connection, "toy", "2")
        made.promote("2")  # once more, by a person: another watch, which knows nothing of the first
        made.serve(share(0.0))
        made.watch.look()
        found = made.newest()
        assert (found.version, found.former, found.records, found.is_running) == ("2", "1", 80, True)


def test_a_champion_that_another_hand_changed_ends_the_watch(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        with write(made.bench.engine) as connection:
            models.rollback(connection, "toy", now_us=made.bench.now_us, reason="by hand", by="ann")
        made.watch.look()
        assert (made.newest().outcome, made.status()) == ("rolled_back", {"1": "champion", "2": "retired"})


def test_the_former_champion_answers_so_many_records_and_labels_count_on(tmp_path: Path) -> None:
    with served(tmp_path, "records = 100") as made:
        made.promote("2")
        wrong = [share(0.4, seed=seed) for seed in range(4)]
        for part in wrong:
            made.serve(part, labels=False)
            made.watch.look()
            made.bench.worker._refresh(force=True)
        assert made.status()["1"] == "retired"
        found = made.newest()
        assert found.is_running
        assert found.records == 160
        made.bench.label({f"r{n}": 1 for n in range(320)})
        made.bench.work()
        made.watch.look()
        assert made.newest().findings["labels"]["records"] == 160  # of those that both answered
        assert made.newest().proposed_us is not None


def test_a_former_champion_that_once_was_a_challenger_goes_on_where_the_champion_is(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.add("3")
        made.bench.worker._refresh(force=True)
        made.serve(share(0.0), version="1")
        made.promote("2")
        made.serve(share(0.0))
        made.serve(share(0.0))
        made.promote("3")
        made.serve(share(0.0), version="3")
        seqs = made.bench.rows(
            "SELECT DISTINCT seq FROM judged_block WHERE slot = '2' AND seq > 1 ORDER BY 1"
        )
        made.watch.look()
        assert made.newest().records == 80
        assert len(seqs) == 2  # as a challenger of 1, and beside 3; not its own time as champion


def test_records_zero_watches_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2", records=0)
        assert made.status() == {"1": "retired", "2": "champion"}
        assert made.bench.rows("SELECT count(*) FROM watch") == [(0,)]


# ---- what others do meanwhile ---------------------------------------------------------------------------


def test_evidence_of_a_watch_that_a_person_ended_meanwhile_changes_nothing(tmp_path: Path) -> None:
    with served(tmp_path, "auto_rollback = true") as made:
        made.promote("2")
        for seed in range(5):
            made.serve(share(0.3, seed=seed))
        stale = made.newest()
        until = made.bench.rows("SELECT max(seq) FROM record")[0][0]
        made.promote("1")  # while the watch reads
        made.promote("2")
        made.watch._judge(stale, made.bench.settings.models["toy"], until=until, records=400)
        assert made.status() == {"1": "former", "2": "champion"}
        assert made.events("rollback.proposed") == made.events("model.rolled_back") == []
        with write(made.bench.engine) as connection:
            watches.retire(connection, stale, now_us=made.bench.now_us, until_seq=until)
        assert made.status()["1"] == "former"  # of the second watch
        assert (made.newest().is_running, made.newest().until_seq) == (True, None)


def test_promotions_within_a_second_leave_the_last_watch(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.add("3")
        made.promote("2", is_seen=False)
        made.promote("1", is_seen=False)
        made.promote("2", is_seen=False)
        made.promote("3")
        made.serve(share(0.0), version="3")
        made.watch.look()
        found = made.newest()
        assert (found.version, found.former, found.records, found.is_running) == ("3", "2", 80, True)
        assert made.status() == {"1": "retired", "2": "former", "3": "champion"}
        outcomes = made.bench.rows("SELECT version, outcome FROM watch ORDER BY began_us")
        assert outcomes == [("2", "rolled_back"), ("2", "superseded"), ("3", "")]


def test_a_watch_that_has_proposed_rolls_back_once_it_may(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        for seed in range(5):
            made.serve(share(0.3, seed=seed))
        made.watch.look()
        assert made.newest().proposed_us is not None
        made.reconfigure("auto_rollback = true")
        made.watch.look()
        assert made.status() == {"1": "champion", "2": "retired"}
        assert len(made.events("rollback.proposed")) == len(made.events("model.rolled_back")) == 1


def test_records_zero_from_now_on_ends_the_answers_and_labels_count_on(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        for seed in range(5):
            made.serve(share(0.3, seed=seed), labels=False)
        made.reconfigure("records = 0")
        made.watch.look()
        assert made.status()["1"] == "retired"
        made.bench.label({f"r{n}": 1 for n in range(400)})
        made.bench.work()
        made.watch.look()
        assert made.newest().findings["labels"]["records"] == 400
        assert made.newest().proposed_us is not None


def test_a_model_that_is_configured_no_more_keeps_its_watch_until_it_is_again(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        known = made.bench.settings
        made.bench.settings = known.model_copy(update={"models": {}})
        made.restart()
        made.watch.look()
        assert made.newest().is_running
        made.bench.settings = known
        made.restart()
        made.late_us = 168 * HOUR_US
        made.watch.look()
        assert made.newest().outcome == "kept"


def test_a_former_champion_that_cannot_answer_is_proposed_and_not_returned_to(tmp_path: Path) -> None:
    with served(tmp_path, "auto_rollback = true") as made:
        made.promote("2")
        for seed in range(5):
            made.serve(share(0.3, seed=seed))
        with write(made.bench.engine) as connection:
            leave_out(connection, "toy", "1", "it raised", now_us=made.bench.now_us)
        made.watch.look()
        assert made.status() == {"1": "former", "2": "champion"}
        (event,) = made.events("rollback.proposed")
        assert (event["rolls_back"], event["held_back"]) == (False, "version 1 is disabled: it raised")
        assert "not by itself: version 1 is disabled: it raised" in watch_sentence(made.newest())
        with write(made.bench.engine) as connection:
            take_back(connection, "toy")
            connection.execute(text(f"UPDATE model_version SET weights = '{'0' * 64}' WHERE version = '1'"))
        made.serve(share(0.3))
        made.watch.look()
        assert made.newest().findings["held_back"] == "the weights of version 1 are lost"
        made.bench.execute("UPDATE model_version SET weights = NULL WHERE version = '1'")
        made.serve(share(0.3))
        made.watch.look()
        assert made.status() == {"1": "champion", "2": "retired"}
        assert len(made.events("rollback.proposed")) == 1


@pytest.mark.parametrize("name", ["champion", "backfill", "live.7", "judge.7"])
def test_a_version_called_as_a_cursor_of_another_kind_is_not_watched(tmp_path: Path, name: str) -> None:
    with served(tmp_path) as made:
        made.bench.execute("UPDATE model_version SET version = :n WHERE version = '1'", n=name)
        before = made.bench.rows("SELECT slot, seq FROM cursor WHERE model = 'toy' ORDER BY slot")
        made.bench.now_us += 1
        with write(made.bench.engine) as connection:
            known = models.champion(connection, "toy")
            found = models.promote(connection, "toy", "2", now_us=made.bench.now_us, reason="", by="ann")
            watches.follow_promotion(connection, known, found, records=100, now_us=made.bench.now_us)
        assert made.bench.rows("SELECT slot, seq FROM cursor WHERE model = 'toy' ORDER BY slot") == before
        assert made.status() == {name: "retired", "2": "champion"}
        assert made.bench.rows("SELECT count(*) FROM watch") == [(0,)]


def test_versions_with_odd_names_are_watched(tmp_path: Path) -> None:
    odd = "build 7/ä%#'\""
    with served(tmp_path) as made:
        made.add(odd)
        made.promote(odd)
        made.promote("2")
        made.serve(share(0.0))
        made.watch.look()
        found = made.newest()
        assert (found.former, found.records, made.status()[odd]) == (odd, 80, "former")


# ---- who sends labels does not decide ------------------------------------------------------------------


def test_labels_of_what_is_flagged_with_one_of_the_two_do_not_count(tmp_path: Path) -> None:
    """Who labels what is flagged with the new champion finds its errors, and none of the other's."""
    with served(tmp_path) as made:
        made.promote("2")
        for seed in range(8):
            wrong = share(0.5, seed=seed)
            scores = [0.51 if one else 0.8 for one in wrong]
            first = made.at
            made.serve(wrong, labels=False, score=scores, former=[0.8 if one else 0.52 for one in wrong])
            made.bench.label({f"r{first + n}": 1 for n, one in enumerate(wrong) if one})
            made.bench.work()
            made.watch.look()
        found = made.newest()
        assert found.findings["left_out"]["flagged"] == sum(sum(share(0.5, seed=seed)) for seed in range(8))
        assert (found.findings["labels"]["records"], found.proposed_us) == (0, None)


def test_labels_of_what_is_flagged_do_not_count_whatever_production_calls_itself(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        wrong = share(0.5)
        scores = [0.51 if one else 0.8 for one in wrong]
        made.serve(wrong, version="build 7", labels=False, score=scores)
        made.bench.label({f"r{n}": 1 for n, one in enumerate(wrong) if one})
        made.bench.work()
        made.watch.look()
        found = made.newest().findings
        assert (found["labels"]["records"], found["left_out"]["flagged"]) == (0, sum(wrong))


def test_corrected_and_erased_labels_count_as_they_stand(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        made.serve([True] * 10 + [False] * 30)
        made.watch.look()
        assert made.newest().findings["labels"]["only_champion"] == 10
        made.bench.label({f"r{n}": 0 for n in range(4)})  # production was right, and the former champion not
        made.bench.work()
        made.watch.look()
        found = made.newest().findings["labels"]
        assert (found["records"], found["only_champion"], found["only_former"]) == (40, 6, 4)
        made.bench.execute("DELETE FROM record WHERE id IN ('r0', 'r9')")
        made.watch.look()
        found = made.newest().findings["labels"]
        assert (found["records"], found["only_champion"], found["only_former"]) == (38, 5, 3)


def test_labels_that_a_policy_chose_do_not_count(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        made.promote("2")
        made.serve([True] * 10 + [False] * 30)
        made.bench.execute(
            "INSERT INTO label_request (model, record_id, policy, reason, probability, round, created_us,"
            " position, population, is_audit, floor)"
            " SELECT model, id, 'bal', 'unsure', 0.9, 1, 1, row, 40, 0, 1 FROM record"
            " WHERE id IN ('r0', 'r1', 'r2')"
        )
        made.watch.look()
        found = made.newest().findings
        assert (found["labels"]["records"], found["left_out"]["requested"]) == (37, 3)
