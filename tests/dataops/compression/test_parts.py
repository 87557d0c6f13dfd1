"""The parts of compression that are pure: variants, search, objectives, likeness, pruning, tables."""

import dataclasses

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.assertions.comparison.differences import Ruler
from outrider.dataops.compression.evaluated import Evaluated, best
from outrider.dataops.compression.judged import Flips, SuiteVerdict, flips
from outrider.dataops.compression.likeness import Likeness, likeness
from outrider.dataops.compression.pruning import apply_masks, prune, zero_share
from outrider.dataops.compression.search import best_first
from outrider.dataops.compression.slo import Slo
from outrider.dataops.compression.timing import Cost, held_bytes
from outrider.dataops.compression.variant import CHAMPION, Variant, neighbours
from outrider.dataops.model_kinds.recipes import apply_recipe, is_two_of_four

SLO = Slo.parse("p99_ms=20")
COST = Cost(4.0, 10.0, 300, 1000.0, 1.0, 1.0, 4_000_000)


def labels(values: "list[int] | np.ndarray[tuple[int], np.dtype[np.int64]]") -> Batch:
    return Batch.from_columns({"outputs.label": np.asarray(values)}, model="m", rows=len(values))


def evaluated(name: str, *, speed: float = 1.0, smaller: float = 1.0, agreement: float = 1.0) -> Evaluated:
    cost = dataclasses.replace(COST, speed=speed, memory_bytes=int(COST.memory_bytes / smaller))
    like = Likeness("label", 400, agreement, agreement - 0.01, agreement, 0.0, 0.0)
    return Evaluated(Variant(name), cost, like)


def test_every_composition_is_reached_by_single_steps_prune_before_distil_before_quantise() -> None:
    seen, waiting = {CHAMPION}, [CHAMPION]
    while waiting:
        for each in neighbours(waiting.pop(), has_student=True):
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    names = {each.name for each in seen}
    assert {"2:4+distil+bf16+int8_weight_only", "student+int8_dynamic", "magnitude_80+distil"} <= names
    assert "student+distil" not in names
    assert Variant("2:4", is_distilled=True, recipe=("bf16",)).steps == 3


def test_the_search_goes_on_from_the_best_and_what_fails_costs_nothing() -> None:
    worth = {"a": 1.0, "b": 5.0, "bad": None, "b1": 2.0, "b2": 3.0, "a1": 9.0}
    beside = {"": ["a", "bad", "b"], "a": ["a1"], "b": ["b1", "b2"], "bad": ["never"]}
    found = best_first("", lambda each: beside.get(each, []), lambda each: each, worth.__getitem__, budget=4)
    assert found == ["a", "bad", "b", "b1", "b2"]


def test_an_objective_names_what_is_missed_and_what_was_not_measured() -> None:
    figures: dict[str, float | None] = {"p99_ms": 21.0, "agreement": 0.98, "flips": None, "regressions": None}
    assert SLO.missed(figures) == ["agreement 0.98 < 0.99", "p99_ms 21 > 20"]
    assert Slo.parse("flips=0.5").missed(figures | {"agreement": 1.0}) == ["flips was not measured"]
    with pytest.raises(ValueError, match="one of p50_ms, p99_ms"):
        Slo.parse("p95_ms=3")
    with pytest.raises(ValueError, match="p99_ms: a number expected, got 'fast'"):
        Slo.parse("p99_ms=fast")


def test_the_best_is_the_most_gainful_of_those_that_keep_every_bound() -> None:
    fast = evaluated("fast", speed=4.0, agreement=0.9)
    fine, small = evaluated("fine", speed=2.0), evaluated("small", speed=1.5, smaller=4.0)
    assert best([fast, fine, small], COST, SLO) is small
    assert best([fast], COST, SLO) is None
    worse = dataclasses.replace(fine, suites=SuiteVerdict(3, ("s: test_negation",)))
    assert best([worse], COST, SLO) is None
    flipping = dataclasses.replace(fine, flips=Flips(0.02, 0.0, "unsure fires more"))
    assert best([flipping], COST, SLO) is None
    assert best([evaluated("same")], COST, SLO) is None


def test_dense_zeros_are_marked_as_what_they_are() -> None:
    pruned = dataclasses.replace(evaluated("magnitude_80", speed=1.02), zeros=0.79)
    assert pruned.marks(COST) == [
        "not faster, smaller or cheaper: 79% of its weights are zeros, multiplied like any others"
    ]
    assert evaluated("bf16", speed=1.9).marks(COST) == []


def test_agreement_takes_off_half_of_what_each_differs_from_itself() -> None:
    truth = np.zeros(1000, dtype=np.int64)
    again, variant, twice = truth.copy(), truth.copy(), truth.copy()
    again[:10] = 1
    variant[:30] = 1
    twice[:40] = 1
    found = likeness(labels(truth), labels(again), labels(variant), labels(twice), Ruler())
    assert found.measure == "label"
    # the mean of 3, 4, 2 and 3 % between both, less half of 1 % and of 1 %
    assert (found.noise, found.same, found.agreement) == pytest.approx((0.01, 0.97, 0.98))
    assert found.low < found.agreement
    equal = likeness(labels(truth), labels(again), labels(again), labels(truth), Ruler())
    assert equal.agreement == 1.0


def test_a_variant_that_lacks_an_output_cannot_be_compared() -> None:
    other = Batch.from_columns({"outputs.text": ["a"]}, model="m")
    with pytest.raises(ValueError, match=r"outputs\.label expected"):
        likeness(labels([1]), labels([1]), other, other, Ruler())


def test_flips_are_counted_by_record_over_all_assertions_beyond_the_noise() -> None:
    none = np.zeros(100, dtype=np.bool_)
    one, two = none.copy(), none.copy()
    one[:4] = True
    two[2:6] = True
    found = flips({"a": none, "b": none}, {"a": none, "b": none}, {"a": one, "b": two})
    assert found is not None
    assert found.rate == pytest.approx(0.06)
    assert found.worst.startswith("a fires on 0.00% of the champion's, 4.00%")
    noisy = flips({"a": none}, {"a": one}, {"a": one})
    assert noisy is not None
    assert noisy.rate == 0.0
    broken = flips({"a": none}, {"a": none}, {})
    assert broken is not None
    assert broken.rate == 1.0
    assert flips({}, {}, {}) is None


def test_pruning_keeps_the_largest_and_masks_hold_them() -> None:
    torch.manual_seed(0)
    first = torch.nn.Linear(16, 8)
    module = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Linear(8, 2))
    before = first.weight.detach().clone()
    masks = prune(module, "2:4")
    assert is_two_of_four(first.weight.detach())
    assert torch.equal(first.weight[masks["0.weight"]], before[masks["0.weight"]])
    assert 0.4 < zero_share(module) < 0.5
    with torch.no_grad():
        first.weight.add_(1.0)
    apply_masks(module, masks)
    assert is_two_of_four(first.weight.detach())
    dense = torch.nn.Linear(10, 10)
    prune(dense, "magnitude_80")
    assert int((dense.weight == 0).sum()) == 80
    with pytest.raises(ValueError, match="magnitude_P"):
        prune(dense, "magnitude_150")


def test_held_bytes_count_packed_weights_as_they_are_packed_and_shared_ones_once() -> None:
    one, two = torch.nn.Linear(256, 256, bias=False), torch.nn.Linear(256, 256, bias=False)
    module = torch.nn.Sequential(one, two)
    assert held_bytes(module) == 2 * 4 * 256 * 256
    two.weight = one.weight
    assert held_bytes(module) == 4 * 256 * 256
    quantised = apply_recipe(torch.nn.Sequential(torch.nn.Linear(256, 256)), ("int8_weight_only",))
    assert 256 * 256 <= held_bytes(quantised) <= 1.1 * 256 * 256
