"""Jobs that compare all versions on the latest labelled rows: who becomes champion, and which rows count."""

import dataclasses
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from sqlalchemy import insert, text

from outrider.dataops.improvement import jobs, watches
from outrider.dataops.improvement.rolling import RollingEvidence
from outrider.dataops.improvement.unseen_rows import labelled_records
from outrider.dataops.improvement.verdicts import list_verdicts
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.model_kinds.torch_models import dump_weights, load_weights
from outrider.dataops.models import registry as models
from outrider.dataops.models.champion_history import list_changes
from outrider.dataops.models.lineage import Kind, add_edges
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.retraining import Retraining
from outrider.monitor.trainer.rolling_looks import RollingLooks
from tests.model_sources import section_source
from tests.running_jobs import run_next
from tests.soak import PATIENCE_S
from tests.training_rows import trained

from .test_trainer import CONFIG, add_job, context, events, hand_in, imported, net, records, run

__all__ = ("context",)
ROLLING = 'held_out = "sign-heldout"\nmax_drop = 0.05\n[models.sign.gate.rolling]\nrows = 200\n'
HOUR = 3_600_000_000


def ruled(context: JobContext, gate: str = ROLLING) -> JobContext:
    """The same service, which compares all versions."""
    before = 'held_out = "sign-heldout"\nmax_drop = 0.05\nmin_gain = 0.2\n'
    config = CONFIG.replace(f"[models.sign.gate]\n{before}", f"[models.sign.gate]\n{gate}")
    assert config != CONFIG
    (context.settings.base / "outrider.toml").write_text(config, encoding="utf-8")
    return dataclasses.replace(context, settings=load_settings(context.settings.base / "outrider.toml"))


def labelled(
    context: JobContext, rows: int = 200, *, faulty: bool = True, seed: int = 9, prefix: str = "live"
) -> list[str]:
    """Labelled records, one an hour, as intake and worker leave them."""
    batch, truth = records(seed, rows, faulty=faulty, prefix=prefix)
    assert isinstance(context.journal, SqliteJournal)
    (seq,) = context.journal.append([Entry("records", "sign", rows, batch.to_ipc())], 1)
    (of_labels,) = context.journal.append([Entry("labels", "sign", rows, batch.to_ipc())], 1)
    at = {"model": "sign", "seq": seq, "digest": 0}
    label = {"model": "sign", "seq": of_labels, "source": "human", "ts_us": 0, "received_us": 0}
    keys = [str(key) for key in batch.keys]
    with write(context.engine) as connection:
        found = [{**at, "id": key, "row": row, "ts_us": (row + 1) * HOUR} for row, key in enumerate(keys)]
        connection.execute(insert(tables.Record), found)
        labels = [
            {**label, "row": row, "record_id": key, "value": str(truth[row]), "label": {"label": truth[row]}}
            for row, key in enumerate(keys)
        ]
        connection.execute(insert(improvement_tables.Label), labels)
    return keys


def earlier(
    context: JobContext,
    version: str = "2",
    *,
    status: str = "retired",
    like_champion: bool = False,
    made_from: Sequence[tuple[Kind, str, str]] = (),
    now_us: int = 2,
) -> None:
    """Version that knows the faulty device, or one like the champion."""
    sides = [records(3, 200, faulty=faulty, prefix="x") for faulty in (False, not like_champion)]
    batches, truths = zip(*sides, strict=True)
    columns = [
        np.concatenate([one.column(f"inputs.{name}") for one in batches]) for name in ("value", "faulty")
    ]
    labels = torch.tensor([y for truth in truths for y in truth])
    state = trained(net, torch.from_numpy(np.stack(columns, 1)).float(), labels, epochs=60, rate=0.03)
    digest = context.objects.put(dump_weights(state))
    with write(context.engine) as connection:
        models.register(
            connection, model="sign", version=version, status=status, digest=digest, weights=digest,
            now_us=now_us, made_from=made_from, source=section_source(context.settings, "sign"),
        )  # fmt: skip


def champion(context: JobContext) -> str:
    with context.engine.connect() as connection:
        found = models.champion(connection, "sign")
    assert found is not None
    return found.version


def compared(context: JobContext, job_id: str) -> RollingEvidence:
    with context.engine.connect() as connection:
        found = Retraining(context, jobs.get(connection, job_id))._compare()
    assert found is not None
    return found


def looked(context: JobContext) -> str:
    """The job of a look that is due."""
    RollingLooks(context).look()
    with context.engine.connect() as connection:
        return str(connection.scalar(text("SELECT id FROM job WHERE status = 'queued'")))


def test_an_earlier_version_that_wins_is_champion_with_history_verdict_event_and_watch(
    context: JobContext,
) -> None:
    imported(context)
    own = ruled(context)
    earlier(own)
    labelled(own)
    looked(own)
    job = run(own)
    assert job.status == "done", job.result
    assert (job.result["candidate"], job.result["promoted"]) == ("2", True)
    assert champion(own) == "2"
    with own.engine.connect() as connection:
        (verdict,) = list_verdicts(connection, "sign", limit=5)
        change = list_changes(connection, "sign", limit=1)[0]
        (watch,) = watches.running(connection, "sign")
    assert (verdict.candidate, verdict.champion, verdict.promoted) == ("2", "1", True)
    rolling = verdict.evidence["rolling"]
    assert (rolling["winner"], rolling["standings"][0]["rows"]) == ("2", 200)
    (told,) = [reason for reason in verdict.reasons if reason.startswith("passed: latest labelled rows")]
    assert told.endswith(" over 1 version, below 0.01 is needed): shown to be better")
    assert (change.version, change.by, change.verdict) == ("2", "gate", verdict.id)
    assert (watch.version, watch.former) == ("2", "1")
    assert events(own)[-1] == "model.promoted"
    assert looked(own) == "None"  # as many labels again


def test_where_no_version_is_better_nobody_is_promoted_and_no_verdict_is_written(context: JobContext) -> None:
    imported(context)
    own = ruled(context)
    earlier(own, like_champion=True)
    labelled(own, faulty=False)
    looked(own)
    job = run(own)
    assert (job.status, champion(own)) == ("done", "1")
    assert job.result["reasons"][0] == "no version is shown to be better than the champion"
    assert "version 2 loses" in job.result["reasons"][1]
    with own.engine.connect() as connection:
        assert list_verdicts(connection, "sign", limit=5) == []


def test_looks_are_due_by_the_labels_that_came_since(context: JobContext) -> None:
    own = ruled(context)
    earlier(own)
    labelled(own, 49)
    assert looked(own) == "None"
    labelled(own, 1, prefix="more", seed=2)
    assert looked(own) != "None"
    RollingLooks(own).look()
    with own.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM job")) == 1


def test_a_candidate_gives_way_to_an_earlier_version_that_wins(context: JobContext) -> None:
    imported(context)
    own = ruled(context)
    earlier(own, "2")
    earlier(own, "3", status="challenger", like_champion=True)
    labelled(own)
    add_job(own, candidate="3")
    job = run(own)
    assert (job.status, job.result["candidate"], job.result["promoted"]) == ("refused", "3", False)
    assert champion(own) == "2"
    with own.engine.connect() as connection:
        found = {one.candidate: one for one in list_verdicts(connection, "sign", limit=5)}
        assert models.get(connection, "sign", "3").status == "refused"
    assert (found["2"].outcome, found["3"].outcome) == ("promoted", "refused")
    assert found["2"].champion == found["3"].champion == "1"
    assert found["3"].reasons[-1] == "version 2 is champion now"


def test_a_candidate_that_wins_alone_is_promoted_and_one_without_rows_is_undecided(
    context: JobContext,
) -> None:
    imported(context)
    own = ruled(context)
    earlier(own, "2", status="challenger")
    add_job(own, candidate="2")
    job = run(own)
    assert job.status == "undecided"
    assert "200 more labelled rows may decide" in job.result["reasons"][0]
    labelled(own)
    add_job(own, candidate="2")
    job = run(own)
    assert (job.status, champion(own)) == ("done", "2")


def test_other_checks_of_the_policy_hold_for_an_earlier_version_too(context: JobContext) -> None:
    """It knows the faulty device, and not the healthy one of held-out rows and suite."""
    imported(context)
    own = ruled(context)
    with write(own.engine) as connection:
        weights = models.get(connection, "sign", "1").weights
    assert weights is not None
    state = load_weights(net(), own.objects.get(weights)).state_dict()
    turned = {name: -tensor if name.startswith("2.") else tensor for name, tensor in state.items()}
    digest = own.objects.put(dump_weights(turned))
    with write(own.engine) as connection:
        models.register(
            connection,
            model="sign",
            version="2",
            status="retired",
            digest=digest,
            weights=digest,
            now_us=2,
            source=section_source(own.settings, "sign"),
        )
    labelled(own)
    looked(own)
    job = run(own)
    assert (job.result["passed"], champion(own)) == (False, "1")
    assert any("test_clear" in reason for reason in job.result["reasons"])
    assert any("passed: latest labelled rows" in reason for reason in job.result["reasons"])
    told = events(own).count("gate.refused")
    with own.engine.connect() as connection:
        assert models.get(connection, "sign", "2").status == "retired"
    labelled(own, 60, prefix="more", seed=4)
    looked(own)
    run(own)
    assert told == events(own).count("gate.refused") == 1  # the same is told once


def test_without_held_out_rows_the_latest_labelled_ones_promote(context: JobContext) -> None:
    own = ruled(context, "[models.sign.gate.rolling]\nrows = 200\n")
    earlier(own)
    labelled(own)
    looked(own)
    job = run(own)
    assert (job.result["passed"], job.result["promoted"], champion(own)) == (True, True, "2")


@pytest.mark.costly("a model is trained, which is what it is about")
@pytest.mark.parametrize("why", ["auto_promote is off", "a watch rolled it back before"])
def test_who_may_not_be_promoted_alone_waits_for_a_person(context: JobContext, why: str) -> None:
    imported(context)
    own = ruled(context, f"auto_promote = false\n{ROLLING}" if why.startswith("auto") else ROLLING)
    earlier(own)
    if why.startswith("a watch"):
        row = {"model": "sign", "version": "2", "began_us": 1, "former": "1", "after_seq": 0, "records": 9}
        row |= {"ended_us": 2, "outcome": "rolled_back", "findings": {"by": "watch"}}
        with write(own.engine) as connection:
            connection.execute(insert(tables.table_of(improvement_tables.Watch)).values(row))
    labelled(own)
    looked(own)
    job = run(own)
    assert (job.result["passed"], job.result["promoted"], champion(own)) == (True, False, "1")
    assert job.result["reasons"][-1] == f"{why}; `outrider promote sign 2` promotes it"


def test_a_return_to_the_watched_former_version_ends_the_watch_and_begins_none(context: JobContext) -> None:
    imported(context)
    own = ruled(context)
    earlier(own)
    with write(own.engine) as connection:
        before = models.champion(connection, "sign")
        again = models.promote(connection, "sign", "2", now_us=5, reason="x", by="me")
        watches.follow_promotion(connection, before, again, records=100, now_us=5)
    labelled(own, faulty=False)
    labelled(own, 60, faulty=False, prefix="b", seed=4)
    earlier(own, "3")
    with write(own.engine) as connection:  # the champion forgot the healthy device
        weights = models.get(connection, "sign", "1").weights
        assert weights is not None
        state = load_weights(net(), own.objects.get(weights)).state_dict()
        turned = {name: -tensor if name.startswith("2.") else tensor for name, tensor in state.items()}
        digest = own.objects.put(dump_weights(turned))
        connection.execute(
            text("UPDATE model_version SET weights = :digest WHERE version IN ('2', '3')"), {"digest": digest}
        )
    looked(own)
    job = run(own)
    assert (job.status, champion(own)) == ("done", "1"), job.result
    with own.engine.connect() as connection:
        assert watches.running(connection, "sign") == []
        assert watches.newest(connection, "sign")[0].outcome == "rolled_back"


# ---- which rows count ----------------------------------------------------------------------------------


@pytest.mark.costly("a model is trained, which is what it is about")
def test_rows_that_a_version_learned_from_never_judge_it(context: JobContext) -> None:
    """By id, by inputs under another id, and all that came before one whose rows nobody named."""
    own = ruled(context)
    labelled(own, 200)
    batch, truth = records(9, 120, faulty=True, prefix="other")  # the inputs of the first 120, other ids
    hand_in(own, "sign-train", batch, truth)
    run(own)
    by_id, labels = records(9, 200, faulty=True, prefix="live")
    some = np.arange(150, 190)
    hand_in(own, "sign-old", by_id.take(some), [labels[row] for row in some])
    run(own)
    earlier(own, "2", made_from=[("dataset", "sign-train@1", "replay")])
    earlier(own, "3", made_from=[("dataset", "sign-old@1", "fresh")])
    earlier(own, "4", made_from=[("model", "sign@3", "weights"), ("dataset", "sign-train@1", "replay")])
    earlier(own, "5", now_us=150 * HOUR)
    earlier(own, "6", made_from=[("model", "sign@5", "weights"), ("dataset", "sign-old@1", "fresh")])
    found = compared(own, looked(own))
    rows = {one.version: one.rows for one in found.standings}
    assert rows == {"2": 80, "3": 160, "4": 40, "5": 50, "6": 10}


def test_rows_that_the_champion_learned_from_judge_nobody(context: JobContext) -> None:
    own = ruled(context)
    labelled(own, 200)
    by_id, labels = records(9, 200, faulty=True, prefix="live")
    hand_in(own, "sign-old", by_id, labels)
    run(own)
    earlier(own, "2")
    with write(own.engine) as connection:
        add_edges(connection, "model", "sign@1", [("dataset", "sign-old@1", "replay")], now_us=1)
    found = compared(own, looked(own))
    assert [one.rows for one in found.standings] in ([], [0])
    assert found.winner is None


def test_the_newest_label_counts_and_a_withdrawn_one_does_not(context: JobContext) -> None:
    own = ruled(context)
    keys = labelled(own, 10)
    label = {"model": "sign", "seq": 1000, "source": "human", "ts_us": 0, "received_us": 0}
    with write(own.engine) as connection:
        connection.execute(
            insert(improvement_tables.Label),
            [
                {**label, "row": 0, "record_id": keys[0], "value": "7", "label": {"label": 7}},
                {**label, "row": 1, "record_id": keys[1], "value": None, "label": {}},
            ],
        )
    with own.engine.connect() as connection:
        found, left_out = labelled_records(connection, "sign")
    assert [one.id for one in found] == [keys[0], *keys[2:]]
    assert (found[0].label, left_out) == (7, 0)


def test_labels_that_a_policy_bought_by_doubt_are_left_out_and_even_draws_count(context: JobContext) -> None:
    keys = labelled(context, 10)
    ask = {"model": "sign", "policy": "uncertainty", "reason": "x", "created_us": 0}
    ask |= {"population": 10, "floor": 1.0}
    even, doubt = {"round": 1, "probability": 0.1}, {"round": 2, "probability": 0.5}
    rows = [{**ask, **even, "record_id": keys[0]}, {**ask, **doubt, "record_id": keys[1]}]
    with write(context.engine) as connection:
        connection.execute(insert(improvement_tables.LabelRequest), rows)
        found, left_out = labelled_records(connection, "sign")
    assert ([one.id for one in found], left_out) == ([keys[0], *keys[2:]], 1)


def test_the_trainers_process_looks_by_itself(context: JobContext) -> None:
    imported(context)
    own = ruled(context)
    earlier(own)
    labelled(own)
    config = own.settings.base / "outrider.toml"
    process = subprocess.Popen([sys.executable, "-m", "outrider.monitor.trainer", "--config", str(config)])
    try:
        deadline = time.monotonic() + PATIENCE_S
        while champion(own) != "2" and time.monotonic() < deadline:
            time.sleep(0.1)
        assert champion(own) == "2"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()


def test_a_version_that_cannot_be_loaded_is_named_and_the_others_are_compared(context: JobContext) -> None:
    imported(context)
    own = ruled(context)
    earlier(own, "2")
    with write(own.engine) as connection:
        models.register(
            connection,
            model="sign",
            version="3",
            status="retired",
            digest="x",
            weights="0" * 64,
            now_us=2,
            source=section_source(own.settings, "sign"),
        )
    labelled(own)
    found = compared(own, looked(own))
    assert (found.winner, [one.version for one in found.standings]) == ("2", ["2"])
    assert found.left_out[0].startswith("version 3 cannot be asked: ")


def test_without_rolling_no_look_is_queued(context: JobContext) -> None:
    earlier(context)
    labelled(context)
    RollingLooks(context).look()
    assert run_next(context) is None
