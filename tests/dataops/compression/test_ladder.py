"""Compression of a small classifier that was trained in the test: tried, judged, chosen, measured again."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from outrider.assertions import Batch
from outrider.assertions.comparison.differences import Ruler
from outrider.dataops.compression.distillation import Distilling
from outrider.dataops.compression.fresh import Fresh, measured_afresh
from outrider.dataops.compression.ladder import LADDER, Compressed, CompressionTask, Ladder, make_two_of_four
from outrider.dataops.compression.report import markdown, rows_of
from outrider.dataops.compression.slo import Slo
from outrider.dataops.compression.timing import Effort
from outrider.dataops.model_kinds.content import pin
from outrider.dataops.model_kinds.recipes import LowRankLinear, is_two_of_four
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights, load_weights
from outrider.errors import ConfigError, OutriderError
from tests.dataops.model_kinds.folders import bert_config, save, write_tokenizer

from .material import CODE, points, task, weights

RUNGS = {rung.name: rung for rung in LADDER}
ON_CPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device that can")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Ladder:
    return Ladder(task(tmp_path_factory.mktemp("points")))


@pytest.fixture(scope="module")
def found(ladder: Ladder) -> Compressed:
    return ladder.climb(Slo.parse("memory_mb=0.15,agreement=0.9,flips=0.05"))


@ON_CPU
def test_ladder_tries_every_rung_in_order_and_says_which_the_device_has_no_use_for(found: Compressed) -> None:
    assert [each.name for each in found.variants] == ["bf16", "int8", "low rank", "distilled"]
    assert found.failed == {"sparse": "zeros are skipped by CUDA devices alone: others multiply them, too"}
    assert found.chosen is not None


def test_ladder_refuses_a_harmful_variant_by_tests_and_assertions(ladder: Ladder, found: Compressed) -> None:
    scope: dict[str, object] = {}
    exec(CODE, scope)
    module: torch.nn.Sequential = scope["big"]()  # type: ignore[operator]
    load_weights(module, weights())
    with torch.no_grad():
        last = module[4]
        assert isinstance(last, torch.nn.Linear)
        last.weight.zero_()
        last.bias.copy_(torch.tensor([9.0, -9.0]))  # whatever is seen, it is negative
    blind = ladder.judge("blind", ladder.task.source, dump_weights(module.state_dict()))
    assert blind.suites is not None
    assert blind.suites.regressions == ("test_far_points",)
    assert blind.flips is not None
    assert blind.flips.rate > 0.1
    assert "surely_wrong fires on" in blind.flips.worst
    assert "regressions 1 > 0" in found.slo.missed(blind.figures)


def test_low_rank_variant_holds_half_of_the_numbers_and_keeps_its_rank_through_learning(
    ladder: Ladder, found: Compressed
) -> None:
    thin = next(each for each in found.variants if each.name == "low rank")
    assert thin.likeness.agreement > 0.9
    assert 1.9 < thin.cost.smaller < 2.1
    kept = ladder.load(replace(thin.source, recipe=()), thin.weights).module[2].weight  # type: ignore[index]
    assert int(torch.linalg.matrix_rank(kept, rtol=1e-4)) == 64
    layer = ladder.load(thin.source, thin.weights).module[2]  # type: ignore[index]
    assert isinstance(layer, LowRankLinear)
    torch.testing.assert_close(layer.weight, kept)


def test_sparse_weights_stay_two_of_four_through_learning(ladder: Ladder) -> None:
    source, made = ladder.make(RUNGS["sparse"])
    state = ladder.load(source, made).module.state_dict()
    assert all(is_two_of_four(state[f"{layer}.weight"]) for layer in (0, 2, 4))
    pruned = ladder.load(replace(ladder.task.source, recipe=()), weights()).module
    masks = make_two_of_four(pruned)
    before = pruned.state_dict()["2.weight"]
    assert bool((state["2.weight"][~masks["2.weight"]] == 0).all())
    assert not torch.equal(state["2.weight"], before)


def test_masks_of_sparse_weights_keep_the_larger_two_of_four() -> None:
    layer, odd = torch.nn.Linear(4, 1), torch.nn.Linear(3, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, -1.0, 2.0, -4.0]]))
    masks = make_two_of_four(torch.nn.Sequential(layer, odd))
    assert {name: mask.tolist() for name, mask in masks.items()} == {"0.weight": [[True, False, False, True]]}
    assert layer.weight.tolist() == [[3.0, 0.0, 0.0, -4.0]]


def test_student_learns_the_champion_without_labels(found: Compressed) -> None:
    student = next(each for each in found.variants if each.name == "distilled")
    assert student.likeness.agreement > 0.9
    assert student.cost.smaller > 100


def test_rungs_that_learn_fail_without_traffic_or_student_and_cost_no_other(ladder: Ladder) -> None:
    few = Ladder(replace(ladder.task, traffic=points(0, 1)))
    none = few.climb(Slo.parse("p99_ms=0.000001"), rungs=[RUNGS["bf16"], RUNGS["low rank"]])
    assert [each.name for each in none.variants] == ["bf16"]
    assert "no older traffic to learn on" in none.failed["low rank"]
    few.task = replace(ladder.task, student=None)
    with pytest.raises(ConfigError, match="--student names one"):
        few.make(RUNGS["distilled"])
    few.task = replace(ladder.task, source=replace(ladder.task.source, adapter="adapter"))
    with pytest.raises(ConfigError, match="has an adapter"):
        few.make(RUNGS["low rank"])


def test_chosen_variant_keeps_the_objective_in_a_fresh_process_on_other_records(found: Compressed) -> None:
    assert found.chosen is not None
    assert found.confirmed is not None
    assert found.confirmed.likeness.rows == 400
    assert found.slo.missed(found.confirmed.figures) == []
    assert found.confirmed.cost.memory_bytes <= 150_000
    assert found.confirmed.cost.speed == found.chosen.cost.speed
    assert found.chosen.gain == max(each.gain for each in found.variants if each.name not in found.refused)


def test_objective_that_nothing_keeps_chooses_nothing(ladder: Ladder) -> None:
    none = ladder.climb(Slo.parse("p99_ms=0.000001"), rungs=[RUNGS["bf16"]])
    assert none.chosen is None
    assert "nothing was chosen" in markdown(none.to_dict())


def test_fresh_process_that_fails_or_hangs_refuses_one_variant_and_loses_no_other(
    ladder: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", partial(subprocess.run, executable="/bin/false"))
    none = ladder.climb(Slo.parse("agreement=0.9,flips=1"), rungs=[RUNGS["bf16"]])
    assert none.chosen is None
    assert [each.name for each in none.variants] == ["bf16"]
    assert "the fresh process ended with 1" in none.refused["bf16"][0]
    monkeypatch.undo()
    asked = Fresh(
        ladder.task.source, ladder.task.weights, ladder.task.folder, b"", b"", Ruler(), Effort(), "cpu", 1
    )
    with pytest.raises(OutriderError, match=r"gave no result within 0\.01 s"):
        measured_afresh(asked, timeout_s=0.01)


def test_student_that_is_a_folder_is_pinned_to_what_it_holds_itself(tmp_path: Path) -> None:
    for seed, name in enumerate(("big", "small")):
        words = write_tokenizer(tmp_path / name)
        save(tmp_path / name, "BertForSequenceClassification", bert_config(len(words)), seed=seed)
    texts = [{"inputs": {"text": text}} for text in ("the film is great", "a dull plot", "bad", "fine") * 4]
    records = Batch.from_records(texts, model="points")
    champion = pin(Source("hf", "big", task="classification", inputs=("text",)), tmp_path)
    pinned = CompressionTask(
        champion, None, "points@1", tmp_path, records, records, records, "small",
        effort=Effort(calls=3, latency_s=0.1, rounds=1), distilling=Distilling(epochs=1),
    )  # fmt: skip
    ladder = Ladder(pinned)
    source, made = ladder.make(RUNGS["distilled"])
    assert ladder.judge("distilled", source, made).source.reference == "small"


def test_tables_hold_every_rung_and_escape_what_they_hold(found: Compressed) -> None:
    report = found.to_dict()
    text = markdown(report)
    assert {row["variant"] for row in rows_of(report)} == {"champion", *RUNGS}
    assert all(f"| {name} |" in text for name in RUNGS)
    assert f"Chosen: {report['chosen']}." in text
    assert r"a\|b" in markdown(report | {"failed": {"sparse": "a|b"}})


def test_model_that_is_not_of_tensors_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def predict(batch):\n    return {}\n")
    given = replace(task(tmp_path), source=Source("function", "model.py:predict"), weights=None)
    with pytest.raises(ConfigError, match="only torch modules and Hugging Face folders"):
        Ladder(given)
