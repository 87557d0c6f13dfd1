"""Compression of a small classifier that was trained in the test: tried, judged, chosen, measured again."""

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.compression.bench import Bench, CompressionTask
from outrider.dataops.compression.compress import Compressed, compress
from outrider.dataops.compression.distillation import Distilling
from outrider.dataops.compression.fresh_measurement import ask_fresh
from outrider.dataops.compression.report import html, markdown
from outrider.dataops.compression.slo import Slo
from outrider.dataops.compression.timing import Effort
from outrider.dataops.compression.variant import STUDENT, Variant
from outrider.dataops.model_kinds.content import pin
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights, load_weights
from outrider.errors import ConfigError, OutriderError
from tests.dataops.model_kinds.folders import bert_config, save, write_tokenizer

from .material import CODE, points, task, weights


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("points")
    scope: dict[str, object] = {}
    exec(CODE, scope)
    module: torch.nn.Sequential = scope["big"]()  # type: ignore[operator]
    load_weights(module, weights())
    with torch.no_grad():
        last = module[4]
        assert isinstance(last, torch.nn.Linear)
        last.weight.zero_()
        last.bias.copy_(torch.tensor([9.0, -9.0]))  # whatever is seen, it is negative
    (folder / "blind.safetensors").write_bytes(dump_weights(module.state_dict()))
    return Bench(task(folder, given={"blind": folder / "blind.safetensors"}))


@pytest.fixture(scope="module")
def found(bench: Bench) -> Compressed:
    return compress(
        bench.task,
        slo=Slo.parse("memory_mb=0.15,agreement=0.9,flips=0.05"),
        unseen=points(400, 3),
        budget=6,
        prunings=("magnitude_50",),
        recipes=(("bf16",), ("fp8_dynamic",)),
        bench=bench,
    )


@pytest.mark.costly("each step is fitted and tried")
def test_every_single_step_is_tried_and_then_the_best_goes_on(found: Compressed) -> None:
    names = [each.variant.name for each in found.found]
    assert names[:5] == ["bf16", "fp8_dynamic", "blind", "student", "magnitude_50"]
    assert len(names) == 7  # what the device cannot do costs nothing of the budget, and is not tried again
    assert all("+" in name and "fp8" not in name for name in names[5:])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device that can")
def test_what_the_device_cannot_do_says_so(found: Compressed) -> None:
    (failed,) = (each for each in found.found if each.variant.recipe == ("fp8_dynamic",))
    assert "cannot be done on cpu" in failed.failure
    assert failed.cost is None


def test_a_harmful_variant_is_refused_by_tests_and_assertions(found: Compressed) -> None:
    (blind,) = (each for each in found.found if each.variant.name == "blind")
    assert blind.suites is not None
    assert blind.suites.regressions == ("test_far_points",)
    assert blind.flips is not None
    assert blind.flips.rate > 0.1
    assert "surely_wrong fires on" in blind.flips.worst
    assert "regressions 1 > 0" in found.slo.missed(blind.figures)


def test_pruned_weights_stay_zero_through_distillation_and_are_marked_as_not_faster(
    bench: Bench, found: Compressed
) -> None:
    assert found.champion.cost is not None
    pruned = next(each for each in found.found if each.variant.name == "magnitude_50")
    assert pruned.smaller(found.champion.cost) == 1.0
    learned = Variant("magnitude_50", is_distilled=True)
    module = bench.load(bench.source(learned), bench.weights(learned)).module
    one, other = (
        bench.load(bench.source(each), bench.weights(each)).module.state_dict()["2.weight"]
        for each in (pruned.variant, learned)
    )
    assert bool((other[one == 0] == 0).all())
    assert not torch.equal(one, other)
    assert float((module.state_dict()["2.weight"] == 0).float().mean()) == pytest.approx(0.5, abs=0.01)


def test_the_student_learns_the_champion_without_labels(found: Compressed) -> None:
    student = next(each for each in found.found if each.variant.weights == STUDENT)
    assert student.likeness is not None
    assert student.likeness.agreement > 0.9
    assert found.champion.cost is not None
    assert student.smaller(found.champion.cost) > 100


def test_the_chosen_one_keeps_the_objective_in_a_fresh_process_on_other_records(found: Compressed) -> None:
    assert found.chosen is not None
    assert found.confirmed is not None
    assert found.confirmed.likeness.rows == 400
    assert found.slo.missed(found.chosen.figures | found.confirmed.figures) == []
    assert found.confirmed.cost.memory_bytes <= 150_000
    assert found.source is not None
    assert found.source.recipe == found.chosen.variant.recipe


def test_an_objective_that_nothing_keeps_chooses_nothing(bench: Bench) -> None:
    none = compress(
        bench.task,
        slo=Slo.parse("p99_ms=0.000001"),
        unseen=points(200, 3),
        budget=1,
        recipes=(("bf16",),),
        bench=bench,
    )
    assert none.chosen is None
    assert "nothing was chosen" in markdown(none.to_dict())


def test_a_fresh_process_that_fails_or_hangs_refuses_one_variant_and_loses_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", partial(subprocess.run, executable="/bin/false"))
    told = compress(
        bench.task,
        slo=Slo.parse("agreement=0.9,flips=1"),
        unseen=points(100, 3),
        budget=1,
        prunings=(),
        recipes=(("bf16",),),
        bench=bench,
    )
    assert told.chosen is None
    assert [each.variant.name for each in told.found] == ["bf16"]
    assert "the fresh process ended with 1" in told.refused["bf16"][0]
    monkeypatch.undo()
    with pytest.raises(OutriderError, match=r"gave no result within 0\.01 s"):
        ask_fresh(
            bench.task.source, bench.task.weights, folder=bench.task.folder, champion=points(100, 3),
            again=points(100, 3), ruler=bench.task.ruler, again_rows=17,
            effort=bench.task.effort, timeout_s=0.01,
        )  # fmt: skip


def test_a_student_that_is_a_folder_is_pinned_to_what_it_holds_itself(tmp_path: Path) -> None:
    for seed, name in enumerate(("big", "small")):
        words = write_tokenizer(tmp_path / name)
        save(tmp_path / name, "BertForSequenceClassification", bert_config(len(words)), seed=seed)
    told = [{"inputs": {"text": text}} for text in ("the film is great", "a dull plot", "bad", "fine") * 4]
    records = Batch.from_records(told, model="points")
    champion = pin(Source("hf", "big", task="classification", inputs=("text",)), tmp_path)
    pinned = CompressionTask(
        champion, None, "points@1", tmp_path, records, records, "small",
        effort=Effort(calls=3, latency_s=0.1, rounds=1), distilling=Distilling(epochs=1),
    )  # fmt: skip
    made = Bench(pinned).evaluate(Variant(STUDENT, is_distilled=True))
    assert made.failure == ""


def test_tables_hold_every_variant_and_escape_what_they_hold(found: Compressed) -> None:
    told = found.to_dict()
    text = markdown(told)
    for each in found.found:
        assert f"| {each.variant.name} |" in text
    page = html(told | {"model": "<script>alert(1)</script>"})
    assert "<script>" not in page
    assert page.count("<circle") == 1 + sum(1 for each in found.found if not each.failure)
    assert f"Chosen: {told['chosen']}." in page


def test_what_is_no_model_of_tensors_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def predict(batch):\n    return {}\n")
    given = task(tmp_path)
    function = Source("function", "model.py:predict")
    with pytest.raises(ConfigError, match="only torch modules and Hugging Face folders"):
        Bench(type(given)(function, None, "m@1", tmp_path, given.records))
