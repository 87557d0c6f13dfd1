"""Jobs that judge by a policy file: it is kept from beginning to end, and what it names must be there."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from outrider.assertions import Batch
from outrider.commands.model_checks import dataset_problems
from outrider.dataops.improvement.verdicts import VerdictRow, list_verdicts
from outrider.dataops.models import registry as models
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.retraining import Retraining

from .test_trainer import CONFIG, add_job, context, hand_in, imported, records, registered_twin, run

__all__ = ("context",)
POLICY = """\
version = 1
held_out = "sign-heldout"
max_drop = 0.05
"""


def with_file(context: JobContext, policy: str) -> JobContext:
    """The same service, with its policy in a file."""
    base = context.settings.base
    (base / "gate.toml").write_text(policy, encoding="utf-8")
    gate = '[models.sign.gate]\nheld_out = "sign-heldout"\nmax_drop = 0.05\nmin_gain = 0.2\n'
    config = CONFIG.replace(gate, '[models.sign.gate]\npolicy = "gate.toml"\n')
    assert config != CONFIG
    (base / "outrider.toml").write_text(config, encoding="utf-8")
    return dataclasses.replace(context, settings=load_settings(base / "outrider.toml"))


def verdict(context: JobContext) -> VerdictRow:
    with context.engine.connect() as connection:
        return list_verdicts(connection, "sign", limit=1)[0]


def judged(context: JobContext, policy: str) -> VerdictRow:
    """Verdict on a challenger with the champion's weights."""
    ruled = with_file(context, policy)
    with context.engine.connect() as connection:
        is_there = connection.scalar(text("SELECT count(*) FROM model_version WHERE version = '2'"))
    if not is_there:
        registered_twin(context)
    add_job(ruled, candidate="2")
    job = run(ruled)
    assert job.status in ("done", "refused", "undecided"), job.result
    return verdict(context)


def test_a_candidate_keeps_the_policy_that_it_was_begun_with(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer ends while it judges, the file becomes another, and a new trainer goes on."""
    imported(context)
    registered_twin(context)
    ruled = with_file(context, POLICY)
    gather = Retraining._gather

    def dies(retraining: Retraining, version: str) -> Any:
        ruled.stop.set()
        return gather(retraining, version)

    monkeypatch.setattr(Retraining, "_gather", dies)
    add_job(ruled, candidate="2")
    assert run(ruled).status == "queued"
    monkeypatch.setattr(Retraining, "_gather", gather)
    ruled.stop.clear()
    strict = with_file(context, POLICY.replace("0.05", "0.0"))
    again = run(strict)
    assert again.status == "done", again.result
    found = verdict(context)
    policy = found.evidence["policy"]
    assert (policy["file"], policy["max_drop"], policy["text"]) == ("gate.toml", 0.05, POLICY)
    assert policy["digest"] == hashlib.sha256(POLICY.encode()).hexdigest()
    assert found.policy == f"gate.toml {policy['digest'][:12]}"
    add_job(strict, candidate="2")
    assert run(strict).status == "undecided"
    assert verdict(context).evidence["policy"]["max_drop"] == 0.0


def test_a_policy_that_changes_within_a_job_changes_nothing_for_it(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(context)
    registered_twin(context)
    ruled = with_file(context, POLICY)
    gather = Retraining._gather

    def edited(retraining: Retraining, version: str) -> Any:
        (context.settings.base / "gate.toml").write_text("nonsense", encoding="utf-8")
        return gather(retraining, version)

    monkeypatch.setattr(Retraining, "_gather", edited)
    add_job(ruled, candidate="2")
    assert run(ruled).status == "done"
    assert verdict(context).evidence["policy"]["text"] == POLICY


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("version = 1\nmax_drop = nan\n", "failed: gate.toml, line 2: max_drop: "),
        ("version = 1\nmax_drop =\n", "failed: gate.toml is no TOML: Invalid value (at line 2"),
    ],
)
def test_a_broken_policy_refuses_that_candidate_and_nothing_else_waits(
    context: JobContext, policy: str, reason: str
) -> None:
    imported(context)
    registered_twin(context)
    broken = with_file(context, policy)
    add_job(broken, candidate="2")
    hand_in(context, "more", *records(7, 50, faulty=False, prefix="more"))
    ended = [run(broken), run(broken)]  # datasets go first
    assert [(job.kind, job.status) for job in ended] == [("dataset", "done"), ("retrain", "refused")]
    assert ended[1].result["reasons"][0].startswith(reason)
    assert verdict(context).evidence["policy"]["fault"] == reason_of(ended[1].result["reasons"][0])
    with context.engine.connect() as connection:
        assert models.get(connection, "sign", "2").status == "refused"
        champion = models.champion(connection, "sign")
    assert champion is not None
    assert champion.version == "1"


def reason_of(told: str) -> str:
    return told.removeprefix("failed: ")


def test_a_policy_of_the_configuration_is_kept_with_its_digest(context: JobContext) -> None:
    imported(context)
    registered_twin(context)
    add_job(context, candidate="2")
    assert run(context).status == "done"
    policy = verdict(context).evidence["policy"]
    assert policy["file"] == ""
    assert json.loads(policy["text"])["max_drop"] == 0.05
    assert verdict(context).policy == hashlib.sha256(policy["text"].encode()).hexdigest()[:12]


def with_slices(context: JobContext, *, rows: int = 200) -> None:
    """Held-out rows of two devices, and a dataset of a third."""
    for name, seed, devices in (("sign-heldout", 5, ("left", "right")), ("third", 6, ("third",))):
        batch, labels = records(seed, rows, faulty=False, prefix=name)
        of = np.array(devices)[np.arange(rows) % len(devices)].tolist()
        columns = {each: batch.column(each) for each in ("id", "inputs.value", "inputs.faulty")}
        sliced = Batch.from_columns(columns | {"attrs.device": of}, model="sign")
        hand_in(context, name, sliced, labels)
        assert run(context).status == "done"


SLICES = """
[[slices]]
name = "left"
where = { device = "left" }

[[slices]]
name = "third"
held_out = "third"
max_drop = 0.2
"""


def tries(context: JobContext) -> set[int]:
    with context.engine.connect() as connection:
        return set(connection.scalars(text("SELECT tries FROM row_tries")))


def test_named_slices_are_judged_by_their_own_margin_and_spend_tries_once(context: JobContext) -> None:
    with_slices(context)
    found = judged(context, POLICY + SLICES.replace('"left" }', '"left" }\nmax_drop = 0.1'))
    assert found.evidence["passed"], found.reasons
    kept = {one["name"]: one for one in found.evidence["named"]}
    assert (kept["left"]["max_drop"], kept["third"]["max_drop"]) == (0.1, 0.2)
    assert kept["left"]["pair"]["excess"]["rows"] == 100
    assert kept["third"]["pair"]["dataset"] == "third@1, third"
    assert any(one.startswith("passed: sign-heldout@1, left (100 rows)") for one in found.reasons)
    assert tries(context) == {1}
    with context.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM row_tries")) == 400
    assert {one.name for one in found.bounds} >= {"sign-heldout@1, left", "third@1, third"}


def test_too_few_rows_of_a_slice_leave_a_candidate_undecided(context: JobContext) -> None:
    with_slices(context, rows=60)
    found = judged(
        context, POLICY.replace("0.05", "0.5") + SLICES.replace('"left" }', '"left" }\nmax_drop = 0.02')
    )
    assert found.outcome == "undecided"
    assert found.reasons[0].startswith("undecided: sign-heldout@1, left (30 rows)")
    assert "more labelled rows may decide" in found.reasons[0]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            ('"left" }', '"lefd" }'),
            "gate.slices.left: no row of sign-heldout@1 has attrs.device = 'lefd'; nearest: left",
        ),
        (
            ("device =", "devise ="),
            "gate.slices.left: no row of sign-heldout@1 has attrs.devise; nearest: device",
        ),
        (
            ('held_out = "third"', 'held_out = "thirt"'),
            "gate.slices.third names dataset 'thirt', which has no version; import it; nearest: third",
        ),
        (('held_out = "third"', 'held_out = "third@7"'), "gate.slices.third names 'third@7': "),
    ],
)
def test_a_slice_that_nobody_has_refuses_with_the_nearest_name(
    context: JobContext, changed: tuple[str, str], told: str
) -> None:
    with_slices(context)
    found = judged(context, POLICY + SLICES.replace(*changed))
    assert found.outcome == "refused"
    assert found.reasons[0].startswith(f"failed: {told}")
    if "third" not in changed[1]:
        problems = list(dataset_problems(load_settings(context.settings.base / "outrider.toml"), "sign"))
        assert len(problems) == 1


def test_suites_and_memory_and_time_are_judged(context: JobContext) -> None:
    imported(context)
    found = judged(
        context,
        POLICY
        + 'suites = ["suite"]\ntests = ["test_clear"]\n'
        + "[memory]\nmax_ratio = 1.0\n[latency]\nmax_ratio = 900\n",
    )
    assert found.evidence["passed"], found.reasons
    weights, times = found.evidence["limits"]["weights"], found.evidence["limits"]["times"]
    assert weights["champion"] == weights["candidate"] > 100
    assert times["rounds"] > 4
    assert 0 < times["low"] <= times["ratio"] <= times["high"] < 900
    refused = judged(context, POLICY + 'tests = ["test_cleer"]\n[memory]\nmax_mb = 0.00001\n')
    assert refused.reasons[0].startswith("failed: memory: the candidate's weights take ")
    assert (
        refused.reasons[1]
        == "failed: gate.tests names 'test_cleer', which was not judged; nearest: test_clear"
    )


def test_the_file_is_found_beside_the_configuration(context: JobContext, tmp_path: Path) -> None:
    ruled = with_file(context, POLICY)
    assert ruled.settings.models["sign"].gate.held_out == "sign-heldout"
    assert (tmp_path / "gate.toml").is_file()
