"""Jobs on real stores: a journal, a database, objects, a torch model in a user's file."""

import dataclasses
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from sqlalchemy import Connection, insert, text

from outrider.assertions import Batch
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.erased import ErasedVersions, erase_rows
from outrider.dataops.datasets.label_account import LabelAccount, account_words
from outrider.dataops.datasets.versions import Version
from outrider.dataops.improvement import jobs, suite_outcomes, watches
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.improvement.retirement import retire
from outrider.dataops.improvement.verdicts import list_verdicts
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.labels.queue import choose_labels, list_requests, queue_labels
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights, load_weights
from outrider.dataops.models import lineage
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.errors import ConfigError, ServerError
from outrider.monitor.http.common import targets_of
from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.reload import Serving, note_serving
from outrider.monitor.trainer import champion_suites_job
from outrider.monitor.trainer.champion_suites_job import ChampionSuites, complete
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.dataset_jobs import commit_flagged
from outrider.monitor.trainer.job_process import AGAIN
from outrider.monitor.trainer.retraining import Retraining
from tests.databases import migrated_for
from tests.end_to_end.service import wait_until
from tests.forked import TRAINING, forks
from tests.model_sources import section_source
from tests.running_jobs import run_next
from tests.soak import PATIENCE_S
from tests.training_rows import trained

CONFIG = """
[models.sign]
architecture = "model.py:Net"
weights = "champion.safetensors"
inputs = ["value", "faulty"]
classes = [0, 1]
behavior = ["suite.py"]
[models.sign.retrain]
replay = "sign-train"
epochs = 150
learning_rate = 0.03
replay_ratio = 1.0
held_out_share = 0.3
[models.sign.gate]
held_out = "sign-heldout"
max_drop = 0.05
min_gain = 0.2
[models.other]
predictor = "model.py:predict"
[[webhooks]]
url = "http://127.0.0.1:9/hooks"
events = ["retrain.requested", "retrain.failed", "gate.refused", "gate.undecided", "gate.waiting",
  "model.promoted", "dataset.committed"]
[worker]
device = "cpu"
"""
MODEL = """
import torch

class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

def predict(batch):
    return {"label": batch.column("inputs.value") > 0}
"""
SUITE = """
from outrider.behavioral_tests import MFT
cases = [{"inputs": {"value": value, "faulty": 0.0}} for value in (-3.0, 3.0)]
test_clear = MFT(cases=cases, labels=[0, 1], capability="basics")
"""
SILENT = """
from outrider.errors import ServerError

def absent(*_):
    raise ServerError("http://far gave no answer within 2 s")

test_far = MFT(cases=cases, expect=absent, capability="basics")
"""


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


def records(seed: int, rows: int, *, faulty: bool, prefix: str) -> tuple[Batch, list[int]]:
    """A faulty device turns the sign of the value round."""
    truth = np.random.default_rng(seed).normal(0, 1, rows)
    columns = {
        "id": [f"{prefix}{row}" for row in range(rows)],
        "inputs.value": -truth if faulty else truth,
        "inputs.faulty": np.full(rows, float(faulty)),
    }
    return Batch.from_columns(columns, model="sign"), [int(value > 0) for value in truth]


@pytest.fixture
def context(tmp_path: Path) -> Iterator[JobContext]:
    torch.set_num_threads(1)
    (tmp_path / "outrider.toml").write_text(CONFIG)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "suite.py").write_text(SUITE)
    settings = load_settings(tmp_path / "outrider.toml")
    settings.data_folder.mkdir()
    healthy, truth = records(1, 200, faulty=False, prefix="train")
    x = torch.from_numpy(
        np.stack([healthy.column("inputs.value"), healthy.column("inputs.faulty")], 1)
    ).float()
    champion = trained(net, x, torch.tensor(truth), epochs=20, rate=0.02)
    engine = migrated_for(settings)
    objects = LocalObjects(settings.data_folder / "objects")
    journal = SqliteJournal(settings.journal_path, max_bytes=None)
    weights = dump_weights(champion)
    with write(engine) as connection:
        models.register_initial(
            connection,
            objects,
            model="sign",
            version="1",
            content=weights,
            is_weights=True,
            now_us=1,
            source=section_source(settings, "sign"),
        )
    yield JobContext(settings, engine, objects, journal, targets_of(settings), poll_s=0.01)
    journal.close()
    engine.dispose()


def add_job(context: JobContext, kind: jobs.Kind = "retrain", model: str = "sign", **params: object) -> str:
    with write(context.engine) as connection:
        return jobs.add(connection, model=model, kind=kind, params=params, now_us=1)


def run(context: JobContext) -> JobRow:
    job = run_next(context)
    assert job is not None
    return job


def hand_in(context: JobContext, name: str, batch: Batch, labels: list[int], *, model: str = "sign") -> str:
    """Queue an import, as the API does."""
    table = pa.Table.from_batches([batch.to_arrow()]).append_column("label.label", pa.array(labels))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    digest = context.objects.put(sink.getvalue().to_pybytes())
    return add_job(context, "dataset", model, dataset=name, object=digest)


def imported(context: JobContext) -> None:
    for name, seed in (("sign-train", 1), ("sign-heldout", 5)):
        hand_in(context, name, *records(seed, 200, faulty=False, prefix=name))
        assert run(context).status == "done"


def flagged_and_labelled(context: JobContext, rows: int = 120, **more: object) -> list[str]:
    """Faulty records as the worker leaves them: journalled, registered, flagged, labelled."""
    batch, truth = records(9, rows, faulty=True, prefix="live")
    batch = batch.with_columns({f"inputs.{name}": values for name, values in more.items()})
    assert isinstance(context.journal, SqliteJournal)
    (seq,) = context.journal.append([Entry("records", "sign", rows, batch.to_ipc())], 1)
    places = [(row, str(key), truth[row]) for row, key in enumerate(batch.keys)]
    at: dict[str, Any] = {"model": "sign", "seq": seq, "ts_us": 0}
    flag = {"assertion": "odd", "revision": "1", "slot": "champion", "severity": 1.0, "level": "warning"}
    label = {"model": "sign", "seq": seq + 1, "source": "human", "ts_us": 0, "received_us": 0}
    with write(context.engine) as connection:
        connection.execute(
            insert(tables.Record), [{**at, "id": key, "row": row, "digest": 0} for row, key, _ in places]
        )
        connection.execute(
            insert(tables.Flag),
            [{**at, **flag, "id": key, "record_id": key, "row": row} for row, key, _ in places],
        )
        connection.execute(
            insert(improvement_tables.Label),
            [
                {**label, "row": row, "record_id": key, "value": str(y), "label": {"label": y}}
                for row, key, y in places
            ],
        )
        connection.execute(text("INSERT INTO cursor VALUES ('sign', 'champion', :seq)"), {"seq": seq + 1})
    return [key for _, key, _ in places]


def events(context: JobContext) -> list[str]:
    with context.engine.connect() as connection:
        return list(connection.scalars(text("SELECT event FROM outbox ORDER BY rowid")))


@pytest.mark.costly("a model is trained, which is what it is about")
def test_the_fine_tuned_candidate_is_promoted_and_the_untrained_one_refused(context: JobContext) -> None:
    imported(context)
    live = flagged_and_labelled(context)
    add_job(context, from_scratch=True, epochs=1, learning_rate=1e-5)
    refused = run(context)
    assert refused.status == "refused", refused.result
    assert any("sign-heldout@1 (200 rows): error rate" in reason for reason in refused.result["reasons"])
    add_job(context)
    done = run(context)
    assert done.status == "done", done.result
    assert done.result["promoted"] is True
    assert done.result["dataset"] == "sign-flagged@1"
    assert set(done.result["seconds"]) == {"dataset", "train", "shadow", "gate"}
    with context.engine.connect() as connection:
        champion = models.champion(connection, "sign")
        assert champion is not None
        assert (champion.version, champion.replaced) == ("3", "1")
        assert models.get(connection, "sign", "2").status == "refused"
        assert models.get(connection, "sign", "1").status == "former"
        assert [(row.version, row.former) for row in watches.running(connection)] == [("3", "1")]
        version = datasets.get(connection, "sign-flagged")
        rows = datasets.provenance(connection, version)
        verdicts = connection.execute(
            text("SELECT candidate, promoted, reasons FROM gate_verdict ORDER BY rowid")
        ).all()
        tree = lineage.trace(connection, "sign")
    assert {row.record_id for row in rows} == set(live)  # exactly the flagged and labelled ones
    assert 10 < sum(row.part == "held_out" for row in rows) < 70
    assert [(verdict.candidate, bool(verdict.promoted)) for verdict in verdicts] == [
        ("2", False),
        ("3", True),
    ]
    assert any(
        "held out" in reason and "or less is needed" in reason for reason in json.loads(verdicts[1].reasons)
    )
    parents = {(parent["kind"], parent["id"], parent["role"]) for parent in tree["parents"]}
    assert ("dataset", "sign-flagged@1", "fresh") in parents
    assert ("dataset", "sign-train@1", "replay") in parents
    assert ("model", "sign@1", "weights") in parents
    committed, requested = "dataset.committed", "retrain.requested"
    assert events(context) == [committed] * 3 + [requested, "gate.refused", requested, "model.promoted"]


class ErasesOnce(threading.Event):
    """Erases a row once the job has learned from it."""

    def __init__(self, context: JobContext, record: str) -> None:
        super().__init__()
        self._context, self._record = context, record
        self.erased: ErasedVersions | None = None

    def is_set(self) -> bool:
        with self._context.engine.connect() as connection:
            is_training = any("epoch" in job.result for job in jobs.recent(connection, model="sign"))
        if self.erased is None and is_training:
            self.erased = erase_rows(self._context.engine, self._context.objects, [self._record])
        return super().is_set()


def test_a_model_that_learned_from_a_row_erased_meanwhile_is_trained_anew(context: JobContext) -> None:
    imported(context)
    live = flagged_and_labelled(context)
    stop = ErasesOnce(context, live[0])
    job = add_job(context, epochs=3)
    again = run(dataclasses.replace(context, stop=stop))
    assert (again.id, again.status) == (job, "running")
    assert stop.erased is not None
    assert [each[:2] for each in stop.erased.versions] == [("sign-flagged", 1)]
    assert stop.erased.models == []
    assert run(context).status in ("done", "refused", "undecided")
    with context.engine.connect() as connection:
        rows = datasets.provenance(connection, datasets.get(connection, "sign-flagged", 1))
        tree = lineage.trace(connection, "sign", "2")
    assert {row.record_id for row in rows} == set(live[1:])
    (fresh,) = [node for node in tree["parents"] if node["role"] == "fresh"]
    assert (fresh["rows"], fresh["erased"]["rows"]) == (len(live) - 1, 1)


@pytest.mark.parametrize("is_harmful", [False, True])
def test_a_challenger_that_is_there_already_is_put_before_the_gate_and_nothing_is_trained(
    context: JobContext, is_harmful: bool
) -> None:
    imported(context)
    source = Source("torch", "model.py:Net", inputs=("value", "faulty"), classes=(0, 1), recipe=("bf16",))
    with write(context.engine) as connection:
        champion = models.get(connection, "sign", "1")
        assert champion.weights is not None
        weights = champion.weights
        if is_harmful:  # every answer is turned round
            state = load_weights(net(), context.objects.get(weights)).state_dict()
            turned = {name: -tensor if name.startswith("2.") else tensor for name, tensor in state.items()}
            weights = context.objects.put(dump_weights(turned))
        models.register(
            connection, model="sign", version="2", status="challenger", digest=weights, weights=weights,
            now_us=2, source=source.to_json(), made_from=[("model", "sign@1", "compressed from")],
        )  # fmt: skip
    add_job(context, candidate="2")
    job = run(context)
    assert job.result["candidate"] == "2"
    assert set(job.result["seconds"]) == {"shadow", "gate"}
    with context.engine.connect() as connection:
        found = models.get(connection, "sign", "2")
    if is_harmful:
        assert (job.status, found.status) == ("refused", "refused")
        assert "failed: basics: test_clear" in job.result["reasons"][0], job.result["reasons"]
        assert "gate.refused" in events(context)
    else:
        assert (job.status, found.status) == ("done", "challenger"), job.result
        assert "live traffic has not judged it" in job.result["reasons"][-1]
        assert "retrain.requested" not in events(context)


def test_what_a_watch_rolled_back_is_never_promoted_by_itself(context: JobContext) -> None:
    imported(context)
    flagged_and_labelled(context)
    with write(context.engine) as connection:
        row = {"model": "sign", "version": "2", "began_us": 1, "former": "1", "after_seq": 0, "records": 9}
        row |= {"ended_us": 2, "outcome": "rolled_back", "findings": {"by": "watch"}}
        connection.execute(insert(tables.table_of(improvement_tables.Watch)).values(row))
    add_job(context)
    job = run(context)
    assert (job.result["candidate"], job.result["passed"], job.result["promoted"]) == ("2", True, False)
    assert job.result["reasons"][-1] == (
        "a watch rolled it back before; `outrider promote sign 2` promotes it"
    )


def registered_twin(context: JobContext) -> None:
    with write(context.engine) as connection:
        champion = models.get(connection, "sign", "1")
        models.register(
            connection, model="sign", version="2", status="challenger", digest=champion.digest,
            weights=champion.weights, now_us=2, source=champion.source,
        )  # fmt: skip


def test_what_a_person_took_away_while_the_gate_looked_is_neither_promoted_nor_refused(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(context)
    registered_twin(context)
    gather = Retraining._gather

    def interrupted(retraining: Retraining, version: str) -> Any:
        found = gather(retraining, version)
        with write(context.engine) as connection:
            models.set_status(connection, "sign", "2", "retired", now_us=5, note="its section is gone")
        return found

    monkeypatch.setattr(Retraining, "_gather", interrupted)
    add_job(context, candidate="2")
    job = run(context)
    assert (job.status, job.result["promoted"]) == ("refused", False)
    assert job.result["reasons"] == ["sign@2 is retired by now (its section is gone): the gate leaves it so"]
    with context.engine.connect() as connection:
        assert models.get(connection, "sign", "2").status == "retired"
        assert connection.execute(text("SELECT count(*) FROM gate_verdict")).scalar() == 0


def test_job_of_a_retired_version_ends_without_loading_it(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered_twin(context)

    def hangs(retraining: Retraining, version: str) -> Any:
        raise AssertionError(f"{version} is loaded")

    monkeypatch.setattr(Retraining, "_gather", hangs)
    add_job(context, candidate="2")
    with write(context.engine) as connection:
        retire(connection, "sign", "2", why="it hangs", now_us=5)
    job = run(context)
    assert (job.status, job.result["promoted"]) == ("refused", False)
    assert job.result["reasons"] == ["sign@2 is retired by now (it hangs): the gate leaves it so"]


def test_a_verdict_never_rests_on_rows_that_were_erased_while_the_gate_looked(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(context)
    registered_twin(context)
    gather, seen = Retraining._gather, []

    def erasing(retraining: Retraining, version: str) -> Any:
        evidence, outcomes = gather(retraining, version)
        assert evidence.held_out is not None
        seen.append(evidence.held_out.excess.rows)
        if len(seen) == 1:
            with context.engine.connect() as connection:
                held = datasets.get(connection, "sign-heldout")
                (record, *_) = [row.record_id for row in datasets.provenance(connection, held)]
            erase_rows(context.engine, context.objects, [record])
        return evidence, outcomes

    monkeypatch.setattr(Retraining, "_gather", erasing)
    add_job(context, candidate="2")
    job = run(context)
    assert job.status == "done"
    assert len(seen) == 2
    assert seen[1] == seen[0] - 1
    with context.engine.connect() as connection:
        (told,) = connection.execute(text("SELECT evidence FROM gate_verdict")).scalars()
    assert json.loads(told)["held_out"]["excess"]["rows"] == seen[1]


def test_a_gate_that_breaks_leaves_the_challenger_that_it_did_not_train_as_it_is(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered_twin(context)

    def broken(retraining: Retraining, version: str) -> Any:
        raise ConfigError("a suite cannot be read")

    monkeypatch.setattr(Retraining, "_gather", broken)
    add_job(context, candidate="2")
    assert run(context).status == "failed"
    with context.engine.connect() as connection:
        assert models.get(connection, "sign", "2").status == "challenger"
        payload = connection.scalar(text("SELECT payload FROM outbox WHERE event = 'retrain.failed'"))
    assert json.loads(payload)["data"]["error"] == "a suite cannot be read"


def with_policy(context: JobContext, **policy: Any) -> JobContext:
    model = context.settings.models["sign"]
    changed = model.model_copy(update={"gate": model.gate.model_copy(update=policy)})
    models_now = dict(context.settings.models) | {"sign": changed}
    return dataclasses.replace(context, settings=context.settings.model_copy(update={"models": models_now}))


def test_the_gate_looks_at_classes_rarer_than_the_drop_that_it_allows(context: JobContext) -> None:
    imported(context)
    registered_twin(context)
    lenient = with_policy(context, max_drop=0.9)
    add_job(lenient, candidate="2")
    reasons = run(lenient).result["reasons"]
    assert any("sign-heldout@1, 2 rare classes: error rate" in reason for reason in reasons), reasons


def test_a_candidate_without_rows_enough_stays_undecided_and_each_try_makes_proof_dearer(
    context: JobContext,
) -> None:
    imported(context)
    registered_twin(context)
    strict = with_policy(context, max_drop=0.01)  # 200 rows show a point of no twin
    errors = []
    for _ in range(2):
        add_job(strict, candidate="2")
        job = run(strict)
        assert (job.status, job.result["promoted"], job.result["undecided"]) == ("undecided", False, True)
        assert job.result["reasons"][0].startswith(
            "undecided: sign-heldout@1 (200 rows): error rate +0.0 points"
        )
        with context.engine.connect() as connection:
            assert models.get(connection, "sign", "2").status == "challenger"
            (verdict, *_) = list_verdicts(connection, "sign", limit=1)
        assert verdict.outcome == "undecided"
        errors.append(verdict.evidence["held_out"]["excess"]["error"])
    assert errors == pytest.approx([0.0243, 0.0061], rel=0.01)
    assert "2nd verdict on these rows" in job.result["reasons"][0]
    assert "`outrider retrain sign --candidate 2` asks again" in job.result["reasons"][-1]
    with context.engine.connect() as connection:
        payload = connection.scalar(text("SELECT payload FROM outbox WHERE event = 'gate.undecided'"))
    missing = json.loads(payload)["data"]["rows_missing"]
    assert 100 < missing < 1000
    hand_in(context, "the-same-rows", *records(5, 200, faulty=False, prefix="other"))
    assert run(context).status == "done"
    renamed = with_policy(context, held_out="the-same-rows", max_drop=0.01)
    add_job(renamed, candidate="2")
    assert "3rd verdict on these rows" in run(renamed).result["reasons"][0]
    hand_in(context, "more-rows", *records(6, 200 + missing, faulty=False, prefix="more"))
    assert run(context).status == "done"
    more = with_policy(context, held_out="more-rows", max_drop=0.01)
    add_job(more, candidate="2")
    assert run(more).status == "done"


def flagged(context: JobContext, more: Batch) -> None:
    with write(context.engine) as connection:
        at: dict[str, Any] = {"model": "sign", "seq": 1, "ts_us": 0}
        flag = {"assertion": "odd", "revision": "1", "slot": "champion", "severity": 1.0, "level": "warning"}
        for row, key in enumerate(map(str, more.keys), 20):
            connection.execute(insert(tables.Record), {**at, "id": key, "row": row, "digest": 0})
            connection.execute(insert(tables.Flag), {**at, **flag, "id": key, "record_id": key, "row": row})


def test_flagged_rows_that_are_too_few_ask_for_labels(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    flagged_and_labelled(context, 20)
    more, _ = records(11, 40, faulty=True, prefix="more")
    flagged(context, more)
    policy = with_policy(context, held_out=None, min_gain=0.0)
    add_job(policy, epochs=1, learning_rate=1e-6, replay_ratio=0)
    asks = Retraining._request
    between: list[Any] = []

    def beside(retraining: Retraining, *of: Any) -> Any:
        """Somebody asks for labels in another round, first."""
        found = asks(retraining, *of)
        if not between:
            with context.engine.connect() as connection:
                options: dict[str, Any] = {"model": "sign", "budget": 3, "seed": 7, "now_us": 1}
                between.append(choose_labels(connection, policy="uniform", audit_share=0.0, **options))
            with write(context.engine) as connection:
                assert queue_labels(connection, between[0])
        return found

    monkeypatch.setattr(Retraining, "_request", beside)
    job = run(policy)
    assert job.status == "undecided", job.result
    assert "held out" in job.result["reasons"][0]
    with context.engine.connect() as connection:
        requests = list_requests(connection, model="sign", status="open")
    assert len(requests) == 40
    assert {request.record_id for request in requests} == set(map(str, more.keys))
    assert {request.round for request in requests} == {1, 2}


def test_what_was_asked_for_and_waits_is_not_asked_for_again(context: JobContext) -> None:
    flagged_and_labelled(context, 20)
    flagged(context, records(11, 600, faulty=True, prefix="more")[0])
    policy = with_policy(context, held_out=None, min_gain=0.0)
    add_job(policy, epochs=1, learning_rate=1e-6, replay_ratio=0)
    assert run(policy).status == "undecided"
    with context.engine.connect() as connection:
        asked = list_requests(connection, model="sign", status="open", limit=9999)
    add_job(policy, candidate="2", dataset="sign-flagged@1")
    again = run(policy)
    assert again.status == "undecided", again.result
    with context.engine.connect() as connection:
        assert list_requests(connection, model="sign", status="open", limit=9999) == asked


def test_a_champion_that_comes_while_the_gate_looks_is_compared_with_too(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(context)
    flagged_and_labelled(context)
    gather = Retraining._gather
    compared: list[list[str]] = []

    def interrupted(retraining: Retraining, version: str) -> Any:
        found = gather(retraining, version)
        with write(context.engine) as connection:
            if not compared:  # a person promotes another version meanwhile
                old = models.get(connection, "sign", "1")
                models.register(
                    connection, model="sign", version="hotfix", status="challenger", digest=old.digest,
                    weights=old.digest, now_us=5, source=old.source,
                )  # fmt: skip
                models.promote(connection, "sign", "hotfix", now_us=6, reason="by hand", by="ann")
        compared.append(list(found[1]))
        return found

    monkeypatch.setattr(Retraining, "_gather", interrupted)
    add_job(context)
    assert run(context).status == "done"
    assert compared == [["1", "2"], ["hotfix", "2"]]
    with context.engine.connect() as connection:
        verdicts = connection.execute(text("SELECT champion, candidate, promoted FROM gate_verdict")).all()
        assert [tuple(row) for row in verdicts] == [("hotfix", "2", 1)]
        assert models.get(connection, "sign", "2").replaced == "hotfix"


@pytest.mark.parametrize("stage", ["register", "conclude"])
def test_a_trainer_that_dies_goes_on_behind_its_last_stage(
    context: JobContext, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Die once inside the transaction of a stage; what was committed is not done again."""
    imported(context)
    flagged_and_labelled(context)
    add_job(context)
    died = []

    def die(*arguments: object, **more: object) -> None:
        died.append(stage)
        raise KeyboardInterrupt  # passes every handler, as a kill would

    with monkeypatch.context() as patch:
        patch.setattr(
            "outrider.dataops.improvement.jobs.note"
            if stage == "register"
            else "outrider.dataops.improvement.jobs.finish",
            die,
        )
        if stage == "register":
            real = jobs.note
            patch.setattr(
                "outrider.dataops.improvement.jobs.note",
                lambda *a, **k: die() if "candidate" in k["result"] else real(*a, **k),
            )
        with pytest.raises(KeyboardInterrupt):
            run_next(context)
    assert died == [stage]
    with context.engine.connect() as connection:
        versions = {model.version: model.status for model in models.all_versions(connection, "sign")}
    assert versions == ({"1": "champion"} if stage == "register" else {"1": "champion", "2": "challenger"})
    assert "model.promoted" not in events(context)
    job = run(context)
    assert (job.status, job.attempts) == ("done", 2)
    with context.engine.connect() as connection:
        assert [model.version for model in models.all_versions(connection, "sign")] == ["1", "2"]
        assert len([v for v in datasets.all_versions(connection) if v.dataset == "sign-flagged"]) == 1
    assert events(context).count("model.promoted") == 1


@pytest.mark.costly("a model is trained, which is what it is about")
def test_being_asked_to_stop_puts_the_job_back(context: JobContext) -> None:
    imported(context)
    flagged_and_labelled(context)
    add_job(context)
    context.stop.set()
    job = run(context)
    assert (job.status, job.attempts) == ("queued", 0)
    context.stop.clear()
    assert run(context).status == "done"


def test_without_anything_to_learn_from_the_job_fails_with_the_reason(context: JobContext) -> None:
    imported(context)
    add_job(context)
    job = run(context)
    assert job.status == "failed"
    assert "no record of sign is flagged and labelled" in job.result["error"]


def test_an_import_with_a_category_outside_the_set_is_refused(context: JobContext) -> None:
    batch, labels = records(1, 5, faulty=False, prefix="x")
    hand_in(context, "sign-train", batch, [*labels[:4], 7])
    job = run(context)
    assert job.status == "failed"
    assert "row 4 (id x4): expect_column_values_to_be_in_set" in job.result["error"]


def test_flagged_rows_that_do_not_pass_are_quarantined_and_the_others_committed(context: JobContext) -> None:
    flagged_and_labelled(context, rows=10)
    with write(context.engine) as connection:
        connection.execute(
            text("""UPDATE label SET value = '7', label = '{"label": 7}' WHERE record_id = 'live3'""")
        )
    add_job(context, "dataset")
    job = run(context)
    assert (job.status, job.result["rows"]) == ("done", 9)
    with context.engine.connect() as connection:
        quarantined = connection.execute(text("SELECT record_id, reasons FROM quarantine")).all()
    assert [row.record_id for row in quarantined] == ["live3"]
    assert quarantined[0].reasons == "label.label: one of 0, 1 expected, got another number"


@pytest.mark.parametrize("note", [[None] * 4, [1.0, np.inf, np.nan, 2.0]], ids=["null", "infinite"])
def test_dataset_job_commits_every_row_whatever_an_undeclared_input_holds(
    context: JobContext, note: list[float | None]
) -> None:
    flagged_and_labelled(context, rows=4, note=pa.array(note, pa.float64()))
    add_job(context, "dataset")
    job = run(context)
    assert (job.status, job.result.get("rows")) == ("done", 4)
    assert held(context) == {}


def import_with_a_null(context: JobContext, name: str) -> JobRow:
    """Import of three rows of the model that has a predictor of its own, one without its input."""
    batch = Batch.from_columns({"id": list("abc"), "inputs.value": [1.0, None, -1.0]}, model="other")
    hand_in(context, name, batch, [1, 0, 0], model="other")
    return run(context)


def with_predictor_alone(context: JobContext, columns: dict[str, str]) -> JobContext:
    model = context.settings.models["other"].model_copy(update={"inputs": ("value",), "columns": columns})
    return dataclasses.replace(
        context, settings=context.settings.model_copy(update={"models": {"other": model}})
    )


@pytest.mark.costly("a model is trained, which is what it is about")
def test_dataset_job_takes_nulls_that_the_sample_or_an_earlier_version_has(context: JobContext) -> None:
    context = with_predictor_alone(context, {})
    refused = import_with_a_null(context, "train")
    assert refused.status == "failed"
    assert "row 1 (id b): inputs.value is null, and nothing says that it may be" in refused.result["error"]
    sample = context.settings.path("data/sample.jsonl")
    sample.parent.mkdir()
    sample.write_text('{"inputs": {"value": 1.5}}\n{"inputs": {"value": null}}\n')
    assert import_with_a_null(context, "train").status == "done"
    sample.unlink()
    assert import_with_a_null(context, "train").status == "done"  # the version before has a null
    assert import_with_a_null(context, "another").status == "failed"
    declared = with_predictor_alone(context, {"inputs.value": "float"})
    assert import_with_a_null(declared, "train").status == "failed"  # a declaration goes first
    assert (
        import_with_a_null(with_predictor_alone(context, {"inputs.value": "float?"}), "another").status
        == "done"
    )


def test_retrain_job_says_how_many_labelled_rows_were_left_out_and_why(context: JobContext) -> None:
    live = flagged_and_labelled(context, rows=8, faulty=pa.array([1.0] * 5 + [None] * 3, pa.float64()))
    add_job(context, "dataset")
    job = run(context)
    assert (job.status, job.result["rows"]) == ("done", 5)
    assert list(held(context)) == live[5:]
    lines = account_words(job.result["labels"])
    assert lines[-1] == (
        "3 of 8 labelled rows left out: inputs.faulty is null, and nothing says that it may be (3)"
    )
    with context.engine.connect() as connection:
        (warning,) = datasets.get(connection, "sign-flagged").manifest["validation"]["warnings"]
    assert "inputs.faulty is null in 3 of 8 rows" in warning["text"]


def test_gate_verdict_says_what_was_not_learned(context: JobContext) -> None:
    flagged_and_labelled(context, rows=20, faulty=pa.array([1.0] * 17 + [None] * 3, pa.float64()))
    policy = with_policy(context, held_out=None, min_gain=0.0)
    add_job(policy, epochs=1, learning_rate=1e-6, replay_ratio=0)
    assert run(policy).status == "undecided"
    with context.engine.connect() as connection:
        (verdict,) = list_verdicts(connection, model="sign", limit=1)
    assert any(
        reason.startswith("3 of 20 labelled rows left out: inputs.faulty") for reason in verdict.reasons
    )
    replay = "dataset 'sign-train' to replay has no version: it learned fresh rows alone"
    assert replay in verdict.reasons


def test_retrain_job_learns_whatever_a_second_label_field_holds(context: JobContext) -> None:
    batch, truth = records(1, 60, faulty=False, prefix="train")
    sure = {"label.sure": np.arange(60)}
    hand_in(context, "sign-train", batch.with_columns(sure), truth)
    assert run(context).status == "done"
    flagged_and_labelled(context, rows=20)
    with write(context.engine) as connection:
        said = """UPDATE label SET label = json_set(label, '$.sure', 'yes')"""
        connection.execute(text(said))
    policy = with_policy(context, held_out=None, min_gain=0.0)
    add_job(policy, epochs=1, learning_rate=1e-6)
    job = run(policy)
    assert job.status in ("undecided", "refused"), job.result


def held(context: JobContext) -> dict[str, str]:
    """Reasons of the records in quarantine."""
    with context.engine.connect() as connection:
        rows = connection.execute(text("SELECT record_id, reasons FROM quarantine WHERE state = 'held'"))
        return {row.record_id: row.reasons for row in rows}


def expecting(context: JobContext, *expectations: dict[str, Any]) -> JobContext:
    """The context with expectations of the model."""
    model = context.settings.models["sign"].model_copy(update={"expectations": expectations})
    settings = context.settings.model_copy(update={"models": {"sign": model}})
    return dataclasses.replace(context, settings=settings)


def test_where_no_row_passes_all_are_quarantined_and_the_next_job_starts_without(context: JobContext) -> None:
    live = flagged_and_labelled(context, rows=4)
    never = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "value", "min_value": 1e9},
    }
    strict = expecting(context, never)
    add_job(context, "dataset")
    job = run(strict)
    assert job.status == "failed"
    assert "none of 4 rows passes; the first: expect_column_values_to_be_between" in job.result["error"]
    assert job.result["error"].endswith("; 4 rows are in quarantine, and the next commit starts without")
    assert held(context).keys() == set(live)
    add_job(context, "dataset")
    job = run(strict)
    assert job.status == "done"
    assert job.result["labels"]["left_out"] == {"quarantined": 4}


def test_what_rules_of_rows_name_is_quarantined_though_a_rule_of_the_table_refuses_all(
    context: JobContext,
) -> None:
    live = flagged_and_labelled(context, rows=8)
    with write(context.engine) as connection:
        connection.execute(
            text("""UPDATE label SET value = '7', label = '{"label": 7}' WHERE record_id = 'live3'""")
        )
    table = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 100}}
    some = {
        "type": "expect_column_values_to_not_be_in_set",
        "kwargs": {"column": "id", "value_set": [live[0]]},
    }
    strict = expecting(context, table, some)
    for quarantined in ("; 1 row is in quarantine, and the next commit starts without", ""):
        add_job(context, "dataset")
        job = run(strict)
        assert job.status == "failed"
        said = job.result["error"]
        assert "expect_table_row_count_to_be_between" in said
        assert "none of" not in said
        assert said.endswith(quarantined)
        assert ("quarantine" in said) == bool(quarantined)
        assert held(context).keys() == {"live3", live[0]}


def test_a_full_retraining_judges_the_rows_that_are_there_by_the_rules_of_now(context: JobContext) -> None:
    live = flagged_and_labelled(context, rows=10)
    add_job(context, "dataset")
    assert run(context).status == "done"
    some = {
        "type": "expect_column_values_to_not_be_in_set",
        "kwargs": {"column": "id", "value_set": [live[0]]},
    }
    strict = expecting(context, some)
    add_job(context, full=True)
    job = run(strict)  # without a new row
    assert job.status == "failed"
    assert "1 of 10 rows of sign-flagged@1 do not pass" in job.result["error"]
    relabelled(context, {live[1]: 1}, seq=50, source="expert")
    relabelled(context, {live[1]: 0}, seq=51, source="expert")
    add_job(context, "dataset", full=True)
    job = run(strict)
    assert job.status == "failed"
    assert f"rows of the version before it (1, such as {live[0]}) do not pass" in job.result["error"]
    add_job(context, "dataset")
    assert run(strict).status == "done"


def relabelled(context: JobContext, labels: dict[str, int | None], *, seq: int, source: str) -> None:
    """Later labels of records, None withdraws, as the worker leaves them."""
    row = {"model": "sign", "seq": seq, "source": source, "ts_us": 0, "received_us": seq}
    with write(context.engine) as connection:
        connection.execute(
            insert(improvement_tables.Label),
            [
                row
                | {"row": at, "record_id": key}
                | {"value": None if y is None else str(y), "label": {} if y is None else {"label": y}}
                for at, (key, y) in enumerate(labels.items())
            ],
        )
        connection.execute(text("UPDATE cursor SET seq = :seq"), {"seq": seq})


def test_corrections_and_withdrawals_make_a_version_that_tells_of_them(context: JobContext) -> None:
    names = flagged_and_labelled(context, rows=10)
    add_job(context, "dataset")
    assert run(context).status == "done"
    with context.engine.connect() as connection:
        first = datasets.get(connection, "sign-flagged")
        batch = datasets.read(connection, context.objects, first)
    truth = dict(zip(batch.keys.tolist(), batch.column("label.label").tolist(), strict=True))
    corrections: dict[str, int | None] = {key: 1 - int(truth[key]) for key in names[:2]}
    relabelled(context, corrections | {names[2]: None}, seq=50, source="expert")
    add_job(context, "dataset")
    job = run(context)
    assert (job.status, job.result["rows"], job.result["number"]) == ("done", 9, 2)
    account = job.result["labels"]
    assert (account["rows"], account["corrected"], account["removed"]) == (0, 2, 1)
    with context.engine.connect() as connection:
        second = datasets.get(connection, "sign-flagged")
        told = {row.record_id: row.label_source for row in datasets.provenance(connection, second)}
        difference = datasets.diff(connection, context.objects, first, second)
    assert difference == datasets.Diff(added=[], removed=[names[2]], changed=sorted(names[:2]))
    assert {key for key, source in told.items() if source == "expert"} == set(names[:2])
    relabelled(context, {names[3]: None}, seq=60, source="expert")
    add_job(context, "dataset")
    job = run(context)
    assert (job.status, job.result["rows"], job.result["number"]) == ("done", 8, 3)
    assert events(context)[-1] == "dataset.committed"


def test_a_withdrawal_is_committed_though_no_other_row_passes(context: JobContext) -> None:
    names = flagged_and_labelled(context, rows=10)
    model = context.settings.models["sign"]
    add_job(context, "dataset")
    assert run(context).status == "done"
    relabelled(context, {names[0]: 1, names[1]: 0, names[2]: None}, seq=50, source="expert")
    bounds = {"column": "inputs.value", "min_value": 1e9, "max_value": 2e9}
    never = {"type": "expect_column_values_to_be_between", "kwargs": bounds}
    strict = model.model_copy(update={"expectations": (never,)})
    settings = context.settings.model_copy(update={"models": {"sign": strict}})
    add_job(context, "dataset")
    job = run(dataclasses.replace(context, settings=settings))
    assert job.status == "failed"
    assert "none of" in job.result["error"]
    with context.engine.connect() as connection:
        version = datasets.get(connection, "sign-flagged")
        told = datasets.provenance(connection, version)
    assert version.number == 2
    assert {row.record_id for row in told} == {*names} - {names[2]}
    add_job(context, "dataset")  # under the rules that its rows passed before
    job = run(context)
    assert (job.status, job.result.get("number")) == ("done", 3)


def test_no_seed_of_a_training_moves_an_entity_to_the_other_part(context: JobContext) -> None:
    flagged_and_labelled(context, rows=40)
    model = context.settings.models["sign"]
    found = []
    for seed in (0, 1):
        own = model.model_copy(update={"retrain": model.retrain.model_copy(update={"seed": seed})})
        settings = context.settings.model_copy(update={"models": {"sign": own}})

        def look(connection: Connection, version: Version | None, account: LabelAccount) -> None:
            assert version is not None
            rows = datasets.provenance(connection, version)
            found.append({row.record_id for row in rows if row.part == "held_out"})
            raise LookupError("seen: nothing is kept")

        with context.engine.connect() as connection:
            job = jobs.get(connection, add_job(context, "dataset"))
        with pytest.raises(LookupError, match="seen"):
            commit_flagged(dataclasses.replace(context, settings=settings), job, look)
    assert found[0] == found[1]
    assert 0 < len(found[0]) < 40


def test_quarantined_rows_are_looked_at_again_when_the_rules_change(context: JobContext) -> None:
    flagged_and_labelled(context, rows=10)
    with write(context.engine) as connection:
        connection.execute(
            text("""UPDATE label SET value = '2', label = '{"label": 2}' WHERE record_id = 'live3'""")
        )
    for number in (1, None):  # the second job has nothing to look at
        add_job(context, "dataset")
        job = run(context)
        assert (job.status, job.result.get("number")) == ("done", number)
    assert job.result["labels"]["left_out"]["quarantined"] == 1
    model = context.settings.models["sign"].model_copy(update={"classes": (0, 1, 2)})
    wider = context.settings.model_copy(update={"models": {"sign": model}})
    add_job(context, "dataset")
    job = run(dataclasses.replace(context, settings=wider))
    assert (job.status, job.result["rows"]) == ("done", 10)
    with context.engine.connect() as connection:
        assert connection.execute(text("SELECT state FROM quarantine")).all() == [("taken",)]


def test_a_candidate_waits_for_live_records_and_is_undecided_without_them(context: JobContext) -> None:
    imported(context)
    flagged_and_labelled(context)
    model = context.settings.models["sign"]
    policy = model.gate.model_copy(update={"shadow_rows": 20, "shadow_timeout_s": 0.05})
    patient = model.model_copy(update={"gate": policy})
    waiting = context.settings.model_copy(update={"models": {"sign": patient}})
    add_job(context)
    job = run(dataclasses.replace(context, settings=waiting))
    assert job.status == "undecided"
    assert job.result["reasons"][0] == "undecided: live records: 0 were judged in time, 20 are needed"


def test_a_model_that_is_trained_elsewhere_gets_its_dataset_version(context: JobContext) -> None:
    add_job(context, "retrain", "other")
    job = run(context)
    assert job.status == "done"
    assert "candidate" not in job.result


def test_an_unknown_model_fails_its_job_only(context: JobContext) -> None:
    add_job(context, "retrain", "nobody")
    assert "no model 'nobody'" in run(context).result["error"]
    assert run_next(context) is None


@pytest.mark.costly("a model is trained, which is what it is about")
def test_the_process_starts_without_torch_and_ends_on_sigterm(context: JobContext) -> None:
    config = context.settings.base / "outrider.toml"
    light = (
        "import sys, outrider.monitor.trainer; assert not {'torch', 'great_expectations'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", light], check=True)
    add_job(context, "retrain", "nobody")
    process = subprocess.Popen([sys.executable, "-m", "outrider.monitor.trainer", "--config", str(config)])
    try:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with context.engine.connect() as connection:
                if connection.scalar(text("SELECT status FROM job")) == "failed":
                    break
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()


class WhileOthersWrite(LocalObjects):
    """An object store that lets somebody else write to the database while it stores."""

    def __init__(self, context: JobContext) -> None:
        super().__init__(context.settings.data_folder / "objects")
        self.engine = context.engine
        self.stored = 0

    def put(self, data: bytes) -> str:
        with write(self.engine) as connection:
            connection.execute(text("SELECT 1"))
        self.stored += 1
        return super().put(data)


@pytest.mark.costly("a model is trained, which is what it is about")
def test_files_of_a_dataset_are_stored_without_holding_up_the_worker(context: JobContext) -> None:
    imported(context)
    flagged_and_labelled(context)
    hand_in(context, "more", *records(7, 50, faulty=False, prefix="more"))
    objects = WhileOthersWrite(context)
    context = dataclasses.replace(context, objects=objects)
    assert run(context).status == "done"
    add_job(context, "dataset")
    assert run(context).status == "done"
    assert objects.stored == 4  # its rows and its Data Docs, twice


def kept(context: JobContext) -> list[tuple[str, str, str, str]]:
    with context.engine.connect() as connection:
        return [
            (row.version, row.test, row.status, row.source)
            for row in suite_outcomes.list_outcomes(connection, "sign")
        ]


def test_the_refusal_names_the_test_with_examples_and_outcomes_are_kept_for_both(context: JobContext) -> None:
    context.settings.path("suite.py").write_text(
        SUITE.replace("labels=[0, 1]", 'labels=[0, 1], name="clear"')
    )
    imported(context)
    flagged_and_labelled(context)
    add_job(context, from_scratch=True, epochs=1, learning_rate=1e-9)
    refused = run(context)
    assert refused.status == "refused"
    told = next(reason for reason in refused.result["reasons"] if "basics" in reason)
    head, *examples = told.splitlines()
    assert head.startswith(
        "failed: basics: clear (MFT, suite suite): the candidate fails 1 of 2 cases (50.0%,"
    )
    assert "the champion 0 of 2 cases (0.0%, 95 % interval 0.0% to 65.8%)" in head
    assert len(examples) == 1
    assert "value=" in examples[0]
    assert "expected label=" in examples[0]
    assert kept(context) == [("1", "clear", "passed", "gate"), ("2", "clear", "failed", "gate")]
    with context.engine.connect() as connection:
        payload = connection.scalar(text("SELECT payload FROM outbox WHERE event = 'gate.refused'"))
        stored = connection.scalar(text("SELECT evidence FROM gate_verdict"))
        assert "\n" not in models.get(connection, "sign", "2").note
    assert told in json.loads(payload)["data"]["reasons"]
    (suite,) = json.loads(stored)["suites"]
    assert (suite["candidate"]["failures"], suite["only_candidate_fails"], suite["p"]) == (1, 1, 1.0)


def test_the_champions_outcomes_are_made_once_and_again_for_an_edited_suite(context: JobContext) -> None:
    def look() -> int:
        return complete(context.settings, context.engine, context.objects, "sign")

    assert look() == 1
    assert kept(context) == [("1", "test_clear", "passed", "registered")]
    assert look() == 0  # known for this revision
    context.settings.path("suite.py").write_text(SUITE.replace("labels=[0, 1]", "labels=[1, 0]"))
    assert look() == 1
    assert kept(context) == [("1", "test_clear", "failed", "registered")]
    context.settings.path("suite.py").write_text("raise RuntimeError('half written')")
    with pytest.raises(ConfigError, match="half written"):
        look()


@pytest.fixture
def _forked() -> Iterator[None]:
    with forks(*TRAINING):
        yield


@pytest.mark.costly("a model is trained, which is what it is about")
@pytest.mark.usefixtures("_forked")
def test_tests_of_an_uploaded_champion_ask_an_engine_without_secrets_in_an_empty_working_directory(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "7")
    row = {
        "id": "up_1", "model": "sign", "token": False, "begun_by": "ann", "request": {}, "status": "done",
        "version": "1", "created_us": 0, "until_us": 0,
    }  # fmt: skip
    with write(context.engine) as connection:
        connection.execute(insert(tables.table_of(improvement_tables.VersionUpload)).values(row))
    suite, code = context.settings.path("suite.py"), context.settings.path("model.py")
    suite.write_text("import os\nassert os.environ['SHOP_TOKEN'] == '7'\n" + suite.read_text())
    guard = "import os\nassert 'SHOP_TOKEN' not in os.environ\nassert not os.listdir()\n"
    code.write_text(guard + code.read_text())
    champions = ChampionSuites(context, context.settings.base / "outrider.toml", look_s=0.0)
    champions.look()
    deadline = time.monotonic() + PATIENCE_S
    while champions.is_running and time.monotonic() < deadline:
        time.sleep(0.05)
    champions.close()
    assert kept(context) == [("1", "test_clear", "passed", "registered")]


def test_champions_tests_wait_until_the_worker_has_judged_what_came_while_it_loaded(
    context: JobContext,
) -> None:
    folder, asked = context.settings.data_folder, []

    def holds(model: str, after: int, until: int) -> bool:
        asked.append((model, after, until))
        return len(asked) < 3

    (folder / "run").mkdir(exist_ok=True)
    (folder / "run" / "config.json").write_text(json.dumps({"loaded_s": 7.0}))
    waiting = dataclasses.replace(context, newest=lambda: 40, holds=holds)
    champions = ChampionSuites(waiting, context.settings.base / "outrider.toml", look_s=0.0)
    champions.look()
    assert not champions.is_running
    note_serving(folder, Serving(7.0))
    for _ in range(2):
        champions.look()
        assert not champions.is_running
    champions.look()
    assert champions.is_running
    assert asked == [("sign", 0, 40)] * 3
    champions.close()


@pytest.mark.usefixtures("_forked")
def test_champion_that_gave_no_answer_keeps_no_outcome_and_is_asked_again(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = context.settings.path("suite.py")
    suite.write_text(suite.read_text() + SILENT)
    with pytest.raises(ServerError, match="1 of 2 were not run: ServerError: http://far gave no answer"):
        complete(context.settings, context.engine, context.objects, "sign")
    assert kept(context) == [("1", "test_clear", "passed", "registered")]
    monkeypatch.setattr(champion_suites_job, "FIRST_REST_S", 0.2)
    champions = ChampionSuites(context, context.settings.base / "outrider.toml", look_s=0.0)
    champions.look()
    first = ended(champions)

    def goes_on() -> bool:
        champions.look()
        return champions.is_running

    wait_until(goes_on, "the next run")
    assert (first, ended(champions)) == (AGAIN, AGAIN)
    champions.close()


def ended(champions: ChampionSuites) -> int | None:
    running = champions._running
    assert running is not None
    return running.wait(PATIENCE_S)


@pytest.mark.usefixtures("_forked")
def test_a_process_of_its_own_makes_them_and_is_ended_with_the_trainer(context: JobContext) -> None:
    champions = ChampionSuites(context, context.settings.base / "outrider.toml", look_s=0.0)
    champions.look()
    deadline = time.monotonic() + PATIENCE_S
    while champions.is_running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert kept(context) == [("1", "test_clear", "passed", "registered")]
    champions.look()
    assert not champions.is_running  # this champion was looked at
    context.settings.path("suite.py").write_text("import time\ntime.sleep(600)")
    again = ChampionSuites(context, context.settings.base / "outrider.toml", look_s=0.0)
    again.look()
    assert again.is_running
    again.close()
    assert not again.is_running
