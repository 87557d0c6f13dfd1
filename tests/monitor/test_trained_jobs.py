"""Training stage of jobs: its record, its repetition, and what it refuses before the first step."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from outrider.assertions import Batch
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import write
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.context import JobContext

from .test_trainer import CONFIG, add_job, context, flagged_and_labelled, hand_in, imported, records, run

__all__ = ["context"]


def configured(context: JobContext, *changes: tuple[str, str]) -> JobContext:
    """The context with a changed configuration."""
    changed = CONFIG
    for old, new in changes:
        assert old in changed
        changed = changed.replace(old, new)
    path = context.settings.base / "outrider.toml"
    path.write_text(changed)
    return dataclasses.replace(context, settings=load_settings(path))


def next_version(context: JobContext) -> str:
    with context.engine.connect() as connection:
        return models.next_version(connection, "sign")


def rewritten(context: JobContext, job: str, result: dict[str, Any]) -> None:
    """Give a job another result, and close it."""
    values = {"result": json.dumps(result), "id": job}
    with write(context.engine) as connection:
        connection.execute(text("UPDATE job SET status = 'done', result = :result WHERE id = :id"), values)


def trained(context: JobContext) -> JobRow:
    imported(context)
    flagged_and_labelled(context)
    add_job(context, epochs=3)
    return run(context)


def test_the_record_of_a_run_says_what_it_was_made_of_and_a_repetition_gives_its_digest(
    context: JobContext,
) -> None:
    job = trained(context)
    record = job.result["run"]
    with context.engine.connect() as connection:
        made, champion = (models.get(connection, "sign", version) for version in ("2", "1"))
    assert (record["digest"], record["champion"], record["champion_digest"]) == (
        made.digest, "sign@1", champion.digest,
    )  # fmt: skip
    assert record["settings"]["epochs"] == 3
    assert record["datasets"]["fresh"]["id"] == "sign-flagged@1 train"
    assert record["datasets"]["replay"]["rows"] == 200
    assert set(record["environment"]) >= {"python", "platform", "torch", "numpy", "outrider"}
    assert (record["device"], record["threads"], list(record["code"])) == ("cpu", 1, ["model.py"])
    facts = record["figures"]
    assert sum(facts["learned"][0]["classes"].values()) == facts["learned"][0]["rows"]
    assert facts["learned"][0]["weak_rows"] == 0
    assert not list((context.settings.data_folder / "run" / "training").glob("*"))

    assert next_version(context) == "3"
    add_job(context, repeat=job.id)
    again = run(context)
    assert (again.status, again.result["equal"], again.result["changed"]) == ("done", True, [])
    assert (again.result["repeat_of"], again.result["digest"]) == (job.id, record["digest"])
    assert next_version(context) == "3"


def test_a_repetition_with_other_weights_is_refused_with_what_changed(context: JobContext) -> None:
    job = trained(context)
    other = job.result | {"run": job.result["run"] | {"digest": "0" * 64}}
    other["run"]["environment"]["torch"] = "1.0"
    rewritten(context, job.id, other)
    model = context.settings.base / "model.py"
    model.write_text(model.read_text() + "\n# another time\n")
    add_job(context, repeat=job.id)
    again = run(context)
    assert (again.status, again.result["equal"]) == ("refused", False)
    assert again.result["changed"][0].startswith("torch 1.0 -> ")
    assert again.result["changed"][1].startswith("model.py ")
    assert again.result["reasons"][0].startswith("the weights are others: ")


def test_a_job_without_a_record_cannot_be_repeated(context: JobContext) -> None:
    imported(context)
    other = add_job(context, candidate="1")
    rewritten(context, other, {})
    add_job(context, repeat=other)
    job = run(context)
    assert job.status == "failed"
    assert "has no record of a training that ended" in job.result["error"]


def with_entities(seed: int, entities: list[str], prefix: str) -> tuple[Batch, list[int]]:
    batch, truth = records(seed, len(entities), faulty=False, prefix=prefix)
    return batch.with_columns({"entity": entities}), truth


@pytest.mark.parametrize("case", ["an entity", "the same rows", "equal ids of other rows", "told"])
def test_held_out_rows_among_those_to_learn_are_refused_with_counts(context: JobContext, case: str) -> None:
    own = configured(context, ('replay = "sign-train"', 'replay = "sign-train"\nmove_leaks = "none"')) if (
        case == "told"
    ) else context  # fmt: skip
    shared = case in ("an entity", "told")
    entities = [f"u{row % 20}" for row in range(200)]
    hand_in(
        own,
        "sign-train",
        *(with_entities(1, entities, "t") if shared else records(1, 200, faulty=False, prefix="t")),
    )
    judging = {
        "an entity": with_entities(5, [f"u{row % 4 + 18}" for row in range(200)], "h"),
        "the same rows": records(1, 200, faulty=False, prefix="t"),
        "equal ids of other rows": records(5, 200, faulty=False, prefix="t"),
    }
    hand_in(own, "sign-heldout", *judging["an entity" if shared else case])
    for _ in range(2):
        assert run(own).status == "done"
    flagged_and_labelled(own)
    add_job(own, epochs=1)
    job = run(own)
    if case == "equal ids of other rows":
        assert "run" in job.result, job.result
        return
    counted = {
        "an entity": "20 of 200 rows of sign-train@1 train whose entity is in sign-heldout@1 (first id t118)",
        "the same rows": "200 of 200 rows of sign-train@1 train that are in sign-heldout@1 (first id t0)",
    }[case if case != "told" else "an entity"]
    if case == "told":
        assert job.result["run"]["figures"]["warnings"] == [counted]
        return
    assert job.status == "failed"
    assert counted in job.result["error"], job.result["error"]
    assert "move_leaks = 'none'" in job.result["error"]
    assert json.dumps(job.result)


def test_weak_labels_are_known_and_weigh_what_the_settings_say(context: JobContext) -> None:
    own = configured(context, ("[models.sign.retrain]", "[models.sign.retrain]\nweak_weight = 0.25"))
    imported(own)
    ids = flagged_and_labelled(own)
    with write(own.engine) as connection:
        connection.execute(
            text(
                "UPDATE label SET source = 'weak:odd' WHERE record_id IN (SELECT value FROM json_each(:ids))"
            ),
            {"ids": json.dumps(ids[:50])},
        )
    add_job(own, epochs=1)
    facts: dict[str, Any] = run(own).result["run"]["figures"]["learned"][0]
    assert 0 < facts["weak_rows"] < 50
    assert np.isfinite(facts["rows"])
