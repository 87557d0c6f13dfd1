"""Looks at streams: the evidence behind a decision, and what could be found."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.assertions.detection import rise_evidence, smallest_rise
from outrider.dataops.alarms.minute_counts import ALL, OF_VERSION, MinuteCounts, MinuteRows
from outrider.dataops.alarms.rate_alarms import AlarmRule, rate_alarms, smallest_shares, stream_looks
from tests.soak import examples

RULE = AlarmRule()


def counted(rng: np.random.Generator, minutes: int, shares: dict[str, float], seen: int = 40) -> MinuteCounts:
    """Minutes of assertion ``x`` by slice; the share of ``b`` rises tenfold in the last 20."""
    counts = MinuteCounts("m", minutes, 0)
    for part, share in shares.items():
        counts.rows["", part] = np.full(minutes, float(seen))
        rate = np.where((np.arange(minutes) >= minutes - 20) & (part == "b"), min(1.0, 10 * share), share)
        counts.rows["x", part] = rng.binomial(seen, rate).astype(float)
    for name in ("", "x"):
        counts.rows[name, ALL] = np.sum([counts.rows[name, part] for part in shares], axis=0)
    return counts


def of_minutes(hits: NDArray[np.float64]) -> MinuteCounts:
    """Minutes of one stream with 40 entities each."""
    counts = MinuteCounts("m", len(hits), 0)
    counts.rows["", ALL], counts.rows["x", ALL] = np.full(len(hits), 40.0), hits
    return counts


def test_the_streams_that_alarm_are_those_whose_evidence_is_enough() -> None:
    counts = counted(np.random.default_rng(0), 600, {"a": 0.02, "b": 0.02})
    looks = {look.stream: look for look in stream_looks(counts, ["x"], RULE)}
    alarms = {
        (one.assertion, one.slice): one.evidence for one in rate_alarms(counts, ["x"], RULE, standing=set())
    }
    assert ("x", "b") in alarms
    assert alarms == {stream: looks[stream].evidence for stream in alarms}
    assert {stream for stream, look in looks.items() if look.evidence >= look.needed} == alarms.keys()
    assert sum(look.alpha for look in looks.values()) == pytest.approx(RULE.alpha)


def test_a_look_holds_the_last_hour_against_the_reference_before() -> None:
    counts = counted(np.random.default_rng(0), 600, {"a": 0.02, "b": 0.02})
    look = next(one for one in stream_looks(counts, ["x"], RULE) if one.slice == "b")
    assert (look.now.seen, look.before.seen) == (60 * 40, 540 * 40)
    assert look.now.hits == counts.rows["x", "b"][-60:].sum()
    assert look.before.hits == counts.rows["x", "b"][:-60].sum()


def test_the_last_hour_of_a_version_counts_its_own_records_alone() -> None:
    counts, came = counted(np.random.default_rng(0), 600, {"a": 0.02}), np.arange(600) >= 595
    for name in ("", "x"):
        counts.rows[name, f"{OF_VERSION}2"] = counts.rows[name, ALL] * came
        counts.rows[name, f"{OF_VERSION}1"] = counts.rows[name, ALL] * ~came
    looks = {look.slice: look for look in stream_looks(counts, ["x"], RULE)}
    new = looks[f"{OF_VERSION}2"]
    assert (new.now.seen, new.before.seen) == (5 * 40, 595 * 40)
    assert new.now.hits == counts.rows["x", ALL][came].sum()
    assert looks[f"{OF_VERSION}1"].now.seen == 55 * 40


def test_too_few_entities_prove_nothing_and_many_prove_a_small_rise() -> None:
    rng = np.random.default_rng(1)
    many = stream_looks(counted(rng, 600, {"a": 0.02}), ["x"], RULE)
    few = stream_looks(counted(rng, 10, {"a": 0.02}, seen=1), ["x"], RULE)
    found = [smallest_shares(looks, RULE)[0] for looks in (many, few)]
    assert 0.03 < found[0] < 0.08
    assert math.isnan(found[1])


def test_the_smallest_share_is_found_within_an_hour_and_a_half_of_the_rise_is_not() -> None:
    rng, found = np.random.default_rng(3), {1.0: 0, 0.5: 0}
    for _ in range(20):
        before = rng.binomial(40, 0.02, 300).astype(float)
        looks = stream_looks(of_minutes(before), ["x"], RULE)
        smallest = smallest_shares(looks, RULE)[0]
        for way in found:
            late = rng.binomial(40, 0.02 + way * (smallest - 0.02), 60).astype(float)
            both = of_minutes(np.concatenate([before, late]))
            found[way] += bool(rate_alarms(both, ["x"], RULE, standing=set()))
    assert found[1.0] >= 16
    assert found[0.5] <= 2


@pytest.mark.parametrize("odds", [1.0, 1.5])
def test_the_smallest_rise_is_that_of_a_slow_search(odds: float) -> None:
    rng = np.random.default_rng(2)
    seen_before = rng.integers(0, 500, 30).astype(float)
    hits_before = np.floor(seen_before * rng.uniform(0, 0.5, 30))
    seen, needed = rng.integers(0, 60, 30).astype(float), rng.uniform(2, 12, 30)
    found = smallest_rise(hits_before, seen_before, seen, needed=needed, odds=odds)
    for row in range(30):
        proves = [
            hits
            for hits in range(1, int(seen[row]) + 1)
            if rise_evidence(hits_before[row], seen_before[row], np.array(float(hits)), seen[row], odds=odds)
            >= needed[row]
        ]
        expected = proves[0] / seen[row] if proves else math.nan
        assert found[row] == pytest.approx(expected, nan_ok=True)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 150),
        st.integers(0, 149),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 149), st.integers(1, 9)), max_size=5),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(100))
@given(STEPS)
def test_sparse_rows_are_those_of_an_array_whatever_is_added_and_shifted(
    steps: list[tuple[int, int, list[tuple[str, int, int]]]],
) -> None:
    rows, dense, start = MinuteRows(150, 7), {name: np.zeros(150) for name in "ab"}, 7
    for by, fresh, added in steps:
        start += by
        rows.shift(start, fresh)
        for name, old in dense.items():
            dense[name] = np.concatenate([old[by:], np.zeros(150)])[:150]
            dense[name][fresh:] = 0.0
        for name, at, count in added:
            rows.add(("x", name), at, count)
            dense[name][at] += count
    assert {key[1] for key in rows} == {name for name, row in dense.items() if row.any()}
    assert all(np.array_equal(rows["x", name], row) for name, row in dense.items() if row.any())
    assert rows.hours <= 2 * sum(np.count_nonzero(row) for row in dense.values())
