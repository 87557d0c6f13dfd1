"""Evidence against exact sums over every outcome, and its rules against slow obvious loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from outrider.assertions.detection import (
    Reference,
    first_of_runs,
    floor_of,
    onset_interval,
    rise_evidence,
    rising,
    select_alarms,
)
from outrider.assertions.detection.reference import log_evidence
from outrider.assertions.detection.rises import largest_ratio

BINARY = np.array([0.0, 1.0])


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
def test_evidence_has_a_mean_of_one_at_its_own_rate(rate: float) -> None:
    hits = np.arange(41)
    found = log_evidence(np.stack([40 - hits, hits], -1), BINARY, np.ones(2), np.full(41, rate))
    assert binom.pmf(hits, 40, rate) @ np.exp(found) == pytest.approx(1.0, abs=1e-9)


@given(rate=st.floats(0.01, 0.99), odds=st.floats(1.0, 3.0), before=st.integers(1, 25), n=st.integers(1, 25))
@settings(max_examples=40, deadline=None)
def test_rise_evidence_has_a_mean_of_at_most_one_while_nothing_has_risen(
    rate: float, odds: float, before: int, n: int
) -> None:
    one, two = np.meshgrid(np.arange(before + 1), np.arange(n + 1), indexing="ij")
    shape = np.ones(one.shape)
    found = rise_evidence(one * shape, before * shape, two * shape, n * shape, odds=odds)
    later = float(floor_of(np.array(rate), odds))
    chance = binom.pmf(one, before, rate) * binom.pmf(two, n, later)
    assert (chance * np.exp(found)).sum() <= 1.0 + 1e-9


@given(st.integers(0, 60), st.integers(60, 90), st.integers(0, 40), st.integers(40, 60))
def test_the_likelihood_ratio_bounds_the_evidence(hits: int, seen: int, later: int, rest: int) -> None:
    counts = [np.array([float(count)]) for count in (hits, seen, later, rest)]
    assert rise_evidence(*counts)[0] <= largest_ratio(*counts)[0] + 1e-9


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.7])
def test_a_reference_refutes_its_true_mean_as_rarely_as_it_says(rate: float) -> None:
    rows = 300
    hits = np.arange(rows + 1)
    reference = Reference.of(np.stack([rows - hits, hits], -1)[:, None, :], BINARY)
    assert (np.diff(reference.means, axis=-1) >= 0).all()
    chance = binom.pmf(hits, rows, rate)
    for level in range(reference.means.shape[-1]):
        refuted = chance @ (rate > reference.means[:, 0, level])
        bound = 1.0 / (2.0 * np.exp(reference.evidence[level + 1]) - 1.0)
        assert refuted <= bound


def test_a_reference_says_what_is_wrong_with_its_counts() -> None:
    with pytest.raises(ValueError, match="stream 0 has no observation in season 1"):
        Reference.of(np.array([[[3, 4], [0, 0]]]), BINARY)
    with pytest.raises(ValueError, match=r"values in \[0, 1\].*got 0.0 to 7.0"):
        Reference.of(np.array([[[3, 4]]]), np.array([0.0, 7.0]))
    with pytest.raises(ValueError, match="one value and one weight per column"):
        Reference.of(np.array([[3, 4]]), BINARY)


@given(st.lists(st.floats(0.0, 1e5), min_size=1, max_size=12), st.sampled_from([0.01, 0.1]))
def test_e_bh_agrees_with_its_definition(evidence: list[float], alpha: float) -> None:
    values = np.array(evidence)
    with np.errstate(divide="ignore"):
        found = select_alarms(np.log(values), alpha=alpha)
    ranked = sorted(evidence, reverse=True)
    most = max([k for k in range(1, len(ranked) + 1) if ranked[k - 1] * k * alpha >= len(ranked)], default=0)
    assert abs(found.sum() - most) == 0 or np.isclose(ranked[most] * (most + 1) * alpha, len(ranked))
    if found.any() and not found.all():
        assert values[found].min() >= values[~found].max()


def test_e_bh_refuses_more_than_the_whole_alpha() -> None:
    with pytest.raises(ValueError, match="sum of 2"):
        select_alarms(np.zeros(2), alpha=0.01, share=np.ones(2))


def test_rising_is_the_mean_of_the_evidence_over_onsets() -> None:
    rng = np.random.default_rng(3)
    seen = rng.poisson(15, 40).astype(float)
    hits = rng.binomial(seen.astype(int), np.where(np.arange(40) < 25, 0.05, 0.4)).astype(float)
    slow = 0.0
    for onset in range(1, 40):
        sides = hits[:onset].sum(), seen[:onset].sum(), hits[onset:].sum(), seen[onset:].sum()
        slow += float(np.exp(rise_evidence(*(np.array(side) for side in sides), odds=1.5))) / 500
    found = rising(hits[None], seen[None], horizon=500, needed=-50.0, odds=1.5)
    assert found[0] == pytest.approx(np.log(slow), abs=1e-6)
    assert rising(hits[None], seen[None], horizon=500, needed=1e3)[0] == -np.inf
    assert rising(hits[None, :1], seen[None, :1], horizon=500, needed=0.0)[0] == -np.inf


def test_onset_interval_holds_the_true_block_in_most_runs() -> None:
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        onset = int(rng.integers(10, 50))
        seen = rng.poisson(20, 60).astype(float)
        hits = rng.binomial(seen.astype(int), np.where(np.arange(60) < onset, 0.1, 0.4)).astype(float)
        found = onset_interval(hits, seen)
        assert found.first <= found.block <= found.last
        covered += found.first <= onset <= found.last
    assert covered >= 186
    with pytest.raises(ValueError, match="two blocks"):
        onset_interval(np.ones(1), np.ones(1))


def test_one_entity_is_one_observation() -> None:
    entity = np.array(["a", "a", "b", "c", "b"])
    assert first_of_runs(entity).tolist() == [True, False, True, True, False]
    assert first_of_runs(entity, known=np.array(["c", "d"])).tolist() == [True, False, True, False, False]
    assert first_of_runs(np.array([], dtype=str)).tolist() == []
