"""The parts of compression that are pure: variants, objectives, likeness, held bytes."""

import dataclasses

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.assertions.comparison.differences import Ruler
from outrider.dataops.compression.judged import Flips, SuiteVerdict, flips
from outrider.dataops.compression.likeness import Answers, Likeness, likeness
from outrider.dataops.compression.slo import Slo
from outrider.dataops.compression.timing import Cost, held_bytes
from outrider.dataops.compression.variant import Variant
from outrider.dataops.model_kinds.recipes import apply_recipe
from outrider.dataops.model_kinds.source import Source

SLO = Slo.parse("p99_ms=20")


def labels(values: "list[int] | np.ndarray[tuple[int], np.dtype[np.int64]]") -> Batch:
    return Batch.from_columns({"outputs.label": np.asarray(values)}, model="m", rows=len(values))


def variant(name: str, *, speed: float = 1.0, smaller: float = 1.0, agreement: float = 1.0) -> Variant:
    cost = Cost(4.0, 10.0, 300, 1000.0, 4_000_000, speed, 1.0, smaller)
    like = Likeness("label", 400, agreement, agreement - 0.01, agreement, 0.0, 0.0)
    return Variant(name, Source("torch", "net.py:big"), None, cost, like, None, None)


def test_an_objective_names_what_is_missed_and_what_was_not_measured() -> None:
    figures: dict[str, float | None] = {"p99_ms": 21.0, "agreement": 0.98, "flips": None, "regressions": None}
    assert SLO.missed(figures) == ["agreement 0.98 < 0.99", "p99_ms 21 > 20"]
    assert Slo.parse("flips=0.5").missed(figures | {"agreement": 1.0}) == ["flips was not measured"]
    with pytest.raises(ValueError, match="one of p50_ms, p99_ms"):
        Slo.parse("p95_ms=3")
    with pytest.raises(ValueError, match="p99_ms: a number expected, got 'fast'"):
        Slo.parse("p99_ms=fast")


def test_variant_gains_doublings_of_speed_and_half_of_those_of_smallness() -> None:
    assert variant("champion").gain == 0.0
    assert variant("a", speed=2.0).gain == pytest.approx(1.0)
    assert variant("b", speed=0.5, smaller=4.0).gain == pytest.approx(0.0)
    assert variant("b", speed=0.5, smaller=4.0).is_useful
    assert not variant("c", speed=1.02).is_useful


def test_variant_is_marked_where_it_gains_nothing_or_breaks_behavior() -> None:
    assert variant("bf16", speed=1.9).marks() == []
    assert variant("champion").marks() == []
    assert variant("int8", speed=1.02).marks() == ["not faster, smaller or cheaper"]
    harmful = dataclasses.replace(
        variant("int8", speed=2.0),
        suites=SuiteVerdict(3, ("s: test_negation", "s: test_praise")),
        flips=Flips(0.02, 0.0, "unsure fires more"),
    )
    assert harmful.marks() == ["fails s: test_negation and 1 more", "unsure fires more"]
    assert SLO.missed(harmful.figures) == ["flips 0.02 > 0.01", "regressions 2 > 0"]


def test_agreement_takes_off_half_of_what_each_differs_from_itself() -> None:
    truth = np.zeros(1000, dtype=np.int64)
    again, other, twice = truth.copy(), truth.copy(), truth.copy()
    again[:10] = 1
    other[:30] = 1
    twice[:40] = 1
    found = likeness(Answers(labels(truth), labels(again)), Answers(labels(other), labels(twice)), Ruler())
    assert found.measure == "label"
    # the mean of 3, 4, 2 and 3 % between both, less half of 1 % and of 1 %
    assert (found.noise, found.same, found.agreement) == pytest.approx((0.01, 0.97, 0.98))
    assert found.low < found.agreement
    equal = likeness(Answers(labels(truth), labels(again)), Answers(labels(again), labels(truth)), Ruler())
    assert equal.agreement == 1.0


def test_a_variant_that_lacks_an_output_cannot_be_compared() -> None:
    other = Batch.from_columns({"outputs.text": ["a"]}, model="m")
    with pytest.raises(ValueError, match=r"outputs\.label expected"):
        likeness(Answers(labels([1]), labels([1])), Answers(other, other), Ruler())


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


def test_held_bytes_count_packed_weights_as_they_are_packed_and_shared_ones_once() -> None:
    one, two = torch.nn.Linear(256, 256, bias=False), torch.nn.Linear(256, 256, bias=False)
    module = torch.nn.Sequential(one, two)
    assert held_bytes(module) == 2 * 4 * 256 * 256
    two.weight = one.weight
    assert held_bytes(module) == 4 * 256 * 256
    quantised = apply_recipe(torch.nn.Sequential(torch.nn.Linear(256, 256)), ("int8_weight_only",))
    assert 256 * 256 <= held_bytes(quantised) <= 1.1 * 256 * 256
