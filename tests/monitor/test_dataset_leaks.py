"""Leaks at the commit of a dataset, on the trainer's real stores."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.leak_moves import report_words
from outrider.dataops.datasets.references import set_tag
from outrider.dataops.state.database import write
from outrider.monitor.queries.improvement import list_datasets
from outrider.monitor.settings.gate_sections import SliceSettings
from outrider.monitor.trainer import dataset_leaks
from outrider.monitor.trainer.context import JobContext

from .test_trainer import add_job, context, flagged_and_labelled, hand_in, records, run

__all__ = ["context"]


@pytest.fixture(autouse=True, params=["read whole", "by index"])
def search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side as the trainer reads few rows, and as it searches many."""
    if request.param == "by index":
        monkeypatch.setattr(dataset_leaks, "READ_WHOLE_ROWS", 0)


def parts_of(context: JobContext, number: int | None = None) -> dict[str, str]:
    with context.engine.connect() as connection:
        version = datasets.get(connection, "sign-flagged", number)
        return {row.record_id: row.part for row in datasets.provenance(connection, version)}


def test_a_flagged_row_that_stands_in_the_gates_dataset_is_held_out_and_named(context: JobContext) -> None:
    live, truth = records(9, 120, faulty=True, prefix="live")
    fresh, _ = records(5, 150, faulty=False, prefix="gate")
    columns = {
        name: np.concatenate([live.column(name)[:30], fresh.column(name)])
        for name in ("inputs.value", "inputs.faulty")
    }
    columns["id"] = np.array([f"gate{row}" for row in range(180)], dtype=object)
    gate = Batch.from_columns(columns, model="sign")
    hand_in(context, "sign-heldout", gate, truth[:30] + [0, 1] * 75)
    assert run(context).status == "done"
    hand_in(context, "sign-train", *records(1, 100, faulty=False, prefix="old"))
    assert run(context).status == "done"
    flagged_and_labelled(context)
    add_job(context, "dataset")
    assert run(context).status == "done"
    parts = parts_of(context)
    assert len(parts) == 120
    assert all(parts[f"live{row}"] == "held_out" for row in range(30))
    assert sum(part == "train" for part in parts.values()) > 40
    (view, *_) = list_datasets(context.engine, "sign")
    assert view.leaks is not None
    (leak,) = [found for found in view.leaks["leaks"] if found["kind"] == "row"]
    assert leak["between"] == ["new train rows", "sign-heldout@1"]
    moved = view.leaks["moved"]
    assert (moved["held_out"], moved["train"], moved["left_out"]) == (leak["rows"], 0, 0)
    assert 15 < leak["rows"] <= 30
    assert ["live0", "gate0"] in leak["pairs"] or parts["live0"] == "held_out"
    assert any("were held out for it" in line for line in report_words(view.leaks))


def test_an_imported_table_that_is_replayed_is_held_against_what_judges_and_only_named(
    context: JobContext,
) -> None:
    hand_in(context, "sign-heldout", *records(1, 200, faulty=False, prefix="gate"))
    assert run(context).status == "done"
    hand_in(context, "sign-train", *records(1, 200, faulty=False, prefix="old"))
    assert run(context).status == "done"
    with context.engine.connect() as connection:
        report = datasets.get(connection, "sign-train").manifest["leaks"]
        first = datasets.get(connection, "sign-heldout").manifest["leaks"]
    assert first["leaks"] == []
    (leak,) = report["leaks"]
    assert (leak["kind"], leak["rows"], leak["between"]) == ("row", 200, ["sign-train", "sign-heldout@1"])
    assert report["moved"] == {}


def test_a_tag_keeps_the_version_that_judges(context: JobContext) -> None:
    """The newest version of the same dataset would not leak: it is not the one that is named."""
    hand_in(context, "sign-heldout", *records(1, 200, faulty=False, prefix="gate"))
    assert run(context).status == "done"
    with write(context.engine) as connection:
        set_tag(connection, "sign-heldout", "frozen", "1", moves=False, now_us=1)
    hand_in(context, "sign-heldout", *records(2, 200, faulty=False, prefix="other"))
    assert run(context).status == "done"
    own = context.settings.models["sign"]
    gate = own.gate.model_copy(update={"held_out": "sign-heldout@frozen"})
    models = {"sign": own.model_copy(update={"gate": gate})}
    tagged = replace(context, settings=context.settings.model_copy(update={"models": models}))
    hand_in(tagged, "sign-train", *records(1, 200, faulty=False, prefix="old"))
    assert run(tagged).status == "done"
    with context.engine.connect() as connection:
        (leak,) = datasets.get(connection, "sign-train").manifest["leaks"]["leaks"]
    assert (leak["rows"], leak["between"]) == (200, ["sign-train", "sign-heldout@1"])


def test_datasets_of_slices_judge_too(context: JobContext) -> None:
    hand_in(context, "sign-night", *records(1, 50, faulty=False, prefix="gate"))
    assert run(context).status == "done"
    own = context.settings.models["sign"]
    gate = own.gate.model_copy(update={"slices": (SliceSettings(name="night", held_out="sign-night"),)})
    models = {"sign": own.model_copy(update={"gate": gate})}
    sliced = replace(context, settings=context.settings.model_copy(update={"models": models}))
    hand_in(sliced, "sign-train", *records(1, 50, faulty=False, prefix="old"))
    assert run(sliced).status == "done"
    with context.engine.connect() as connection:
        (leak,) = datasets.get(connection, "sign-train").manifest["leaks"]["leaks"]
    assert (leak["rows"], leak["between"]) == (50, ["sign-train", "sign-night@1"])


def test_a_table_of_any_other_name_is_held_against_nothing(context: JobContext) -> None:
    for name in ("sign-heldout", "extra"):
        hand_in(context, name, *records(1, 50, faulty=False, prefix="x"))
        assert run(context).status == "done"
    with context.engine.connect() as connection:
        assert datasets.get(connection, "extra").manifest["leaks"]["leaks"] == []


def test_rows_that_all_stand_in_the_gates_dataset_leave_none_to_learn_from(context: JobContext) -> None:
    """Labelled by humans, they judge beside it."""
    live, truth = records(9, 120, faulty=True, prefix="live")
    hand_in(context, "sign-heldout", live, truth)
    assert run(context).status == "done"
    flagged_and_labelled(context)
    add_job(context, "dataset")
    assert run(context).status == "done"
    assert set(parts_of(context).values()) == {"held_out"}


def test_a_retraining_without_a_row_to_learn_from_fails_by_name(context: JobContext) -> None:
    hand_in(context, "sign-heldout", *records(9, 120, faulty=True, prefix="live"))
    assert run(context).status == "done"
    flagged_and_labelled(context)
    add_job(context)
    job = run(context)
    assert job.status == "failed"
    assert "there is no row to train on, neither fresh nor replayed" in str(job.result["error"])
