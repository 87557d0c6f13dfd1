"""Spread of rates against slow loops, and what it does to evidence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.assertions.detection import Spread, rising
from outrider.assertions.detection.rises import might_rise

Floats = NDArray[np.float64]
WIDTHS = (2, 5)


def stretches(side: Floats, width: int, before: int) -> Floats:
    return np.array([side[at : at + width].sum() for at in range(0, before - width + 1, width)])


def variance(own: Floats, whole: Floats) -> float | None:
    given = whole > 0
    if given.sum() < 4:
        return None
    rate = (own.sum() + 0.5) / (whole.sum() + 1.0)
    usual = own.sum() / whole.sum()
    around = ((own - whole * usual)[given] ** 2 / whole[given]).sum()
    free = given.sum() - 1
    return float(around / free / (rate * (1 - rate)) / (1 + np.sqrt(2 / free)))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_overall_spread_is_chi_square_over_its_degrees_of_freedom(data: st.DataObject) -> None:
    seen = np.array(data.draw(st.lists(st.integers(0, 30), min_size=24, max_size=40)), dtype=np.float64)
    hits = np.array([data.draw(st.integers(0, int(n))) for n in seen], dtype=np.float64)
    found = Spread.of(hits[None], seen[None], WIDTHS, peak=2)
    for onset in (21, len(seen) - 1):
        own = [variance(stretches(hits, one, onset), stretches(seen, one, onset)) for one in WIDTHS]
        if None not in own:  # else a width is estimated from the one before
            assert found.overall[0, onset - 1] == pytest.approx(max(1.0, *(x for x in own if x is not None)))
        parts = stretches(hits, 2, onset), stretches(seen, 2, onset)
        rates = parts[0] / np.maximum(parts[1], 1.0)
        assert found.highest[0, onset - 1] == pytest.approx(rates.max())


def test_what_comes_behind_an_onset_changes_no_spread_of_it() -> None:
    rng = np.random.default_rng(5)
    seen = np.full((1, 60), 40.0)
    hits = rng.binomial(40, 0.1, (1, 60)).astype(np.float64)
    later = hits.copy()
    later[:, 40:] = 40.0
    one, two = Spread.of(hits, seen, WIDTHS, peak=2), Spread.of(later, seen, WIDTHS, peak=2)
    for name in ("overall", "local", "highest"):
        assert getattr(one, name)[:, :40].tolist() == getattr(two, name)[:, :40].tolist()


def evidence(shares: Floats, seed: int) -> float:
    rng = np.random.default_rng(seed)
    seen = np.full((1, len(shares)), 100.0)
    hits = rng.binomial(100, shares)[None].astype(np.float64)
    spread = Spread.of(hits, seen, (15, 60, 240), peak=60)
    return float(rising(hits, seen, horizon=10_080, needed=0.0, odds=1.5, spread=spread)[0])


def test_second_morning_of_a_rhythm_is_no_alarm_and_four_times_its_peak_is() -> None:
    minute = np.arange(1440 + 600)
    rhythm = 0.05 * (1 + 0.5 * np.sin(2 * np.pi * minute / 1440 - np.pi / 2))
    assert max(evidence(rhythm, seed) for seed in range(5)) < np.log(100)
    broken = rhythm.copy()
    broken[-30:] = 0.3
    assert min(evidence(broken, seed) for seed in range(5)) > np.log(100)


def test_steady_shares_lose_no_evidence_worth_speaking_of() -> None:
    shares = np.full(1500, 0.05)
    shares[-20:] = 0.15
    rng = np.random.default_rng(1)
    seen = np.full((20, 1500), 40.0)
    hits = rng.binomial(40, shares, (20, 1500)).astype(np.float64)
    spread = Spread.of(hits, seen, (15, 60, 240), peak=60)
    plain = rising(hits, seen, horizon=10_080, needed=0.0, odds=1.5)
    held = rising(hits, seen, horizon=10_080, needed=0.0, odds=1.5, spread=spread)
    assert np.median(held / plain) > 0.6


@given(st.integers(0, 1000), st.floats(0.05, 0.4), st.floats(0.5, 8.0))
@settings(max_examples=25, deadline=None)
def test_no_stream_that_the_bound_leaves_out_has_the_evidence(seed: int, after: float, needed: float) -> None:
    rng = np.random.default_rng(seed)
    shares = np.full(300, 0.05)
    shares[-rng.integers(1, 60) :] = after
    seen = rng.poisson(rng.uniform(0.5, 30), (8, 300)).astype(np.float64)
    hits = rng.binomial(seen.astype(np.int64), shares).astype(np.float64)
    spread = Spread.of(hits, seen, WIDTHS, peak=2)
    held = rising(hits, seen, horizon=1_000, needed=needed, odds=1.5, spread=spread)
    left_out = ~might_rise(hits, seen, horizon=1_000, needed=needed)
    assert (held[left_out] < needed).all()
