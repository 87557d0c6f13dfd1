"""Figures of assertions agree with slow loops, and their rules say what they should."""

import math
import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions.flags.quality import (
    Judged,
    KnownError,
    Overlap,
    Rate,
    SuspensionRule,
    detect,
    lead_time,
    overlaps,
    rate_of,
    reasons_to_suspend,
)

GUIDE = Path(__file__).parents[3] / "docs" / "assertion-quality.md"


def test_the_examples_of_the_guide_run() -> None:
    notebook: dict[str, object] = {"__name__": "notebook"}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(GUIDE), "exec"), notebook)
    assert "pair" in notebook


def test_nothing_known_is_no_share() -> None:
    rate = rate_of([])
    assert math.isnan(rate.share)
    assert (rate.low, rate.high) == (0.0, 1.0)


def test_95_percent_intervals_cover_95_percent() -> None:
    rng = np.random.default_rng(5)
    for share in (0.05, 0.3, 0.9):
        hits = rng.binomial(60, share, size=4000)
        covered = [Rate(int(h), 60).low <= share <= Rate(int(h), 60).high for h in hits]
        assert np.mean(covered) > 0.93


def test_coverage_and_false_failures_are_shares_of_errors_and_right_answers() -> None:
    records = [Judged(str(n), wrong=n < 30, flagged=n % 3 == 0) for n in range(100)]
    found = detect(records)
    assert (found.coverage, found.false_failures) == (Rate(10, 30), Rate(24, 70))
    assert found.errors == Rate(30, 100)


@given(st.dictionaries(st.sampled_from("abcd"), st.sets(st.integers(0, 9).map(str)), max_size=4))
def test_overlaps_agree_with_sets(fired: dict[str, set[str]]) -> None:
    pairs = {(pair.a, pair.b): pair for pair in overlaps(fired)}
    for a in fired:
        for b in fired:
            both = fired[a] & fired[b]
            if a < b and both:
                pair = pairs[a, b]
                assert pair.jaccard == len(both) / len(fired[a] | fired[b])
                assert pair.b_given_a == Rate(len(both), len(fired[a]))
                assert pair.reversed().b_given_a == pair.a_given_b == Rate(len(both), len(fired[b]))
    assert len(pairs) == sum(bool(fired[a] & fired[b]) for a in fired for b in fired if a < b)


def test_the_smaller_one_is_subsumed_and_few_records_say_nothing() -> None:
    pair = Overlap("small", "large", 60, 400, 60)
    assert pair.is_subsumed
    assert not pair.reversed().is_subsumed
    assert not Overlap("small", "large", 15, 400, 15).is_subsumed
    assert not Overlap("small", "large", 60, 400, 50).is_subsumed


def test_lead_time_is_from_the_first_flag_of_an_episode_to_the_first_label_that_shows_its_error() -> None:
    s = 1_000_000
    flags = {"a": [10 * s, 20 * s, 5000 * s], "b": [30 * s]}
    errors = {
        "a": [KnownError(15 * s, 100 * s), KnownError(12 * s, 70 * s), KnownError(3000 * s, 3001 * s)],
        "c": [KnownError(30 * s, 31 * s)],
    }
    found = lead_time(flags, errors, quiet_s=60.0)
    assert (found.episodes, found.known, found.median_s) == (3, 1, 60.0)
    early = lead_time({"a": [10 * s, 20 * s]}, {"a": [KnownError(15 * s, 5 * s)]}, quiet_s=60.0)
    assert early.median_s == -5.0
    assert lead_time({}, errors, quiet_s=60.0).median_s is None


def test_only_a_surely_imprecise_or_a_noisy_assertion_is_proposed() -> None:
    rule = SuspensionRule(min_precision=0.2, min_outcomes=20, max_fire_rate=0.3)
    usual = Rate(10, 1000)
    assert reasons_to_suspend(usual, Rate(0, 19), rule) == ()  # too few
    assert len(reasons_to_suspend(usual, Rate(0, 40), rule)) == 1
    assert reasons_to_suspend(usual, Rate(4, 40), rule) == ()  # the interval reaches above
    assert "fires on 60 %" in reasons_to_suspend(Rate(600, 1000), Rate(0, 0), rule)[0]
    assert reasons_to_suspend(Rate(600, 1000), Rate(30, 40), rule) == ()  # it fires because all is wrong
    assert len(reasons_to_suspend(Rate(600, 1000), Rate(0, 40), rule)) == 2
