"""Live evidence against slow loops, and its error and power in simulated histories."""

import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.improvement.live_evidence import (
    POWER,
    clustered,
    first_records,
    records_until_refused,
    simulate,
)
from outrider.assertions.statistics.bets import UNIT_BETS
from outrider.assertions.statistics.difference_sequence import DifferenceSequence, mean_bounds
from outrider.dataops.flags.shadow_flags import CommonRecords
from outrider.dataops.improvement.entity_hours import LEAST_STAKE
from outrider.dataops.improvement.gate import ShadowEvidence, judge_shadow
from outrider.dataops.improvement.live_evidence import live_evidence
from outrider.dataops.ledger.flag_marks import JUDGED, LEVEL_BITS
from tests.soak import examples

RECORDS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(-2, 3), st.sampled_from([1, 3, 5, 9, 15]), st.sampled_from([1, 3, 5])
    ),
    max_size=60,
)


def common(records: list[tuple[int, int, int, int]]) -> CommonRecords:
    columns = np.array(records, dtype=np.int64).reshape(-1, 4).T
    return CommonRecords(columns[0], columns[1], columns[2].astype(np.uint8), columns[3].astype(np.uint8))


def observations(records: list[tuple[int, int, int, int]]) -> list[tuple[float, float]]:
    """Value of each hour of an entity and the stake on it, by the definition."""
    hours: dict[tuple[int, int], list[int]] = defaultdict(list)
    for entity, hour, champion, candidate in records:
        hours[entity, hour].append((candidate > JUDGED) - (champion > JUDGED))
    found, last = [], dict[int, float]()
    for entity, hour in sorted(hours):
        value = sum(hours[entity, hour]) / len(hours[entity, hour])
        found.append((value, max(1 - abs(last.get(entity, 0.0)), LEAST_STAKE)))
        last[entity] = value
    return found


def fortune(seen: list[tuple[float, float]], mean: float) -> float:
    """What bets against "at most ``mean``" have made of 1."""
    each = [
        math.prod(1 + bet * stake * (value - mean) / (mean + 1) for value, stake in seen)
        for bet in UNIT_BETS.tolist()
    ]
    return float(np.mean(each))


@settings(max_examples=examples(100))
@given(RECORDS)
def test_evidence_is_what_a_loop_over_the_records_finds(records: list[tuple[int, int, int, int]]) -> None:
    found, seen = live_evidence(common(records)), observations(records)
    assert found.rows == len(records)
    assert found.only_candidate == sum(b > JUDGED >= a for _, _, a, b in records)
    assert found.only_champion == sum(a > JUDGED >= b for _, _, a, b in records)
    assert found.entity_hours == len(seen)
    assert found.entities == len({entity for entity, *_ in records} - {0})
    critical = [(a & 8, b & 8) for _, _, a, b in records]
    told = {one.level: (one.only_champion, one.only_candidate) for one in found.levels}
    alone = sum(a > b for a, b in critical), sum(b > a for a, b in critical)
    assert told.get("critical", (0, 0)) == alone
    assert -1 <= found.low <= found.difference <= found.high <= 1
    assert (found.low > 0) == (fortune(seen, 0.0) > 20) or fortune(seen, 0.0) == pytest.approx(20)
    if found.low > -1:
        assert fortune(seen, found.low) == pytest.approx(20, rel=1e-4)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=80))
def test_bounds_of_any_values_are_those_of_quarters(values: list[float]) -> None:
    given_values, ones = np.array(values), np.ones(len(values))
    expected = DifferenceSequence.of(given_values, ones).interval(0.9, is_unweighted=True)
    assert mean_bounds(given_values, ones, 0.9) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("values", "stake"), [([1.5], [1.0]), ([0.5], [1.5]), ([0.5], [1.0, 1.0]), ([math.nan], [1.0])]
)
def test_bounds_of_values_out_of_range_are_refused(values: list[float], stake: list[float]) -> None:
    with pytest.raises(ValueError, match="values from -1 to 1 with one stake from 0 to 1 each expected"):
        mean_bounds(np.array(values), np.array(stake))


def test_nothing_seen_proves_nothing() -> None:
    assert live_evidence(common([])) == ShadowEvidence()


def test_flags_that_share_a_record_count_once() -> None:
    history = simulate(clustered(8, flags=10), 8)
    once = simulate(clustered(8), 8)
    assert replace(live_evidence(history), levels=()) == replace(live_evidence(once), levels=())


def test_a_fault_of_many_hours_refuses_nobody() -> None:
    """Beside a quiet fleet one entity is flagged for twelve hours, with the candidate alone."""
    quiet = [
        (entity, hour, JUDGED, JUDGED) for entity in range(1, 21) for hour in range(12) for _ in range(4)
    ]
    storm = [(21, hour, JUDGED, JUDGED | LEVEL_BITS["warning"]) for hour in range(12) for _ in range(100)]
    found = live_evidence(common(quiet + storm))
    assert (found.only_champion, found.only_candidate) == (0, 1200)
    assert judge_shadow(found, 0).passed


def test_a_candidate_that_flags_every_record_of_a_nameless_stream_is_refused() -> None:
    always = [(0, hour, JUDGED, JUDGED | LEVEL_BITS["warning"]) for hour in range(60) for _ in range(10)]
    assert not judge_shadow(live_evidence(common(always)), 0).passed


@pytest.mark.parametrize("records", [1, 10])
def test_equal_candidates_are_seldom_refused_however_long_faults_last(records: int) -> None:
    refused = [records_until_refused(clustered(seed, records=records), seed) for seed in range(135)]
    assert sum(one is not None for one in refused) <= 0.05 * len(refused)


def test_worse_candidates_are_found_within_some_thousands_of_records() -> None:
    for ratio, most in ((2.0, 5000), (5.0, 1000)):
        worse = replace(POWER["usual"], ratio=ratio)
        needed = [records_until_refused(worse, seed, 20) or math.inf for seed in range(15)]
        assert np.median(needed) <= most


def test_a_look_sees_the_first_records() -> None:
    history = simulate(clustered(1), 1)
    assert live_evidence(first_records(history, 10)).rows == 10
