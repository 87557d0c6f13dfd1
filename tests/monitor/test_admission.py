"""What is shed, first to last, and how much of it: decisions are functions of the backlog and the pace."""

import zlib

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.monitor.worker.admission import (
    LEAST_SHARE,
    Admission,
    SamplingState,
    SheddingMeasure,
    admitted,
    period_us,
    weighted,
)

ORDER = ["NONE", "LIVE_TESTS", "CHALLENGERS", "JUDGES", "SAMPLING", "SKIP"]


def controlled(slo_s: float = 1.0, per_row: float = 0.01) -> Admission:
    admission = Admission(slo_s)
    admission.pace.spent(100 * per_row, rows=100)
    return admission


def test_measures_come_in_the_declared_order_as_the_backlog_grows() -> None:
    admission = controlled()
    seen = [
        admission.decide(waiting_rows=rows, oldest_s=min(rows * 0.01, 0.8)).measure.name
        for rows in range(1, 80)
    ]
    seen.append(admission.decide(waiting_rows=80, oldest_s=0.9).measure.name)
    assert list(dict.fromkeys(seen)) == ORDER
    assert [measure.name for measure in sorted(SheddingMeasure)] == ORDER


def test_an_old_record_that_holds_up_nobody_is_judged_and_not_skipped() -> None:
    assert controlled().decide(waiting_rows=1, oldest_s=60.0).measure is SheddingMeasure.JUDGES


def test_nothing_is_sampled_before_the_pace_is_known() -> None:
    assert Admission(1.0).decide(waiting_rows=10**6, oldest_s=60.0).share == 1.0


def test_what_is_admitted_fits_into_two_fifths_of_the_objective() -> None:
    admission = controlled()
    for rows in (60, 100, 1000, 30_000):
        share = admission.decide(waiting_rows=rows, oldest_s=0.1).share
        assert 0.36 < rows * share * 0.01 <= 0.4
    assert admission.decide(waiting_rows=10**9, oldest_s=0.1).share == LEAST_SHARE


@pytest.mark.parametrize("overload", [1.5, 2.0, 10.0])
def test_the_age_of_admitted_records_settles_below_the_objective_in_any_overload(overload: float) -> None:
    rng = np.random.default_rng(1)
    cost = rng.lognormal(np.log(0.01) - 0.5, 1.0, size=200_000)
    arrivals = np.cumsum(rng.exponential(0.01 / overload, size=len(cost)))
    admission, now, head, ages = controlled(), 0.0, 0, []
    while now < 60.0:
        waiting = int(np.searchsorted(arrivals, now, side="right")) - head
        if waiting <= 0:
            now = float(arrivals[head])
            continue
        decision = admission.decide(waiting_rows=waiting, oldest_s=now - float(arrivals[head]))
        assert decision.measure is not SheddingMeasure.SKIP
        rows = min(waiting, int(admission.pace.rows_in(0.125) / decision.share))
        kept = head + np.flatnonzero(rng.random(rows) < decision.share)
        spent = float(cost[kept].sum()) + 0.002
        now, head = now + spent, head + rows
        admission.pace.spent(spent, rows=len(kept))
        ages.append(now - arrivals[kept])
    settled = np.concatenate(ages)
    assert np.quantile(settled, 0.99) <= 1.0
    assert 0.25 <= np.median(settled) <= 0.6


def entities(count: int) -> Batch:
    rows = [
        {"id": f"r{n}", "entity": f"e{n % count}" if n % 7 else None, "inputs": {"x": float(n % count == 0)}}
        for n in range(3 * count)
    ]
    return Batch.from_records(rows, model="toy")


def test_whole_entities_are_admitted_and_a_smaller_share_takes_a_part_of_them() -> None:
    batch = entities(200)
    entity = batch.column("entity")
    sets = []
    for share in (1.0, 0.5, 0.25):
        rows = admitted(batch, share, seed=3, period=5)
        inside = set(entity[rows]) - {None}
        left = np.setdiff1d(np.arange(batch.rows), rows)
        assert share == 1.0 or inside.isdisjoint(set(entity[left]) - {None})
        sets.append({batch.keys[row] for row in rows})
    assert sets[0] > sets[1] > sets[2]


def test_each_period_draws_other_entities() -> None:
    batch = entities(400)
    chosen = [set(admitted(batch, 0.25, seed=0, period=period).tolist()) for period in range(40)]
    assert len({frozenset(one) for one in chosen}) == 40
    assert set().union(*chosen) == set(range(batch.rows))  # nobody is left out for ever


def sampled(units: list[Batch], share: float, *, seed: int, rotate: int) -> list[Batch]:
    """What is judged of units with its weights; a period lasts ``rotate`` units."""
    kept, standing = [], SamplingState()
    for at, unit in enumerate(units):
        rows = admitted(unit, share, seed=seed, period=at // rotate)
        part = unit.take(rows)
        factor, carried = standing.factor(
            float(unit.column("weight").sum()), float(part.column("weight").sum())
        )
        standing = SamplingState(carried)
        kept.append(weighted(part, factor))
    return kept


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weights_sum_to_what_was_offered_however_few_are_admitted(seed: int) -> None:
    batch = entities(400)
    units = [batch.slice(start, 60) for start in range(0, batch.rows, 60)] * 200
    kept = sampled(units, 0.0025, seed=seed, rotate=20)
    offered = sum(unit.rows for unit in units)
    total, carried = sum(float(part.column("weight").sum()) for part in kept), 0.0
    for unit, part in zip(reversed(units), reversed(kept), strict=True):
        if part.rows:
            break
        carried += unit.rows
    assert 0.5 * offered < total
    assert total + carried == pytest.approx(offered, rel=1e-9)


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_weights_make_rates_unbiased() -> None:
    """With a share that admits nobody of 400 entities in two periods of five, too."""
    batch = entities(400)
    shuffled = batch.take(np.random.default_rng(9).permutation(batch.rows))
    units = [shuffled.slice(start, 200) for start in range(0, batch.rows, 200)]
    entity = np.array([hash_of(name) for name in shuffled.column("entity")])
    positive = dict(zip(shuffled.keys.tolist(), (entity < 0.3).tolist(), strict=True))
    truth, found = float((entity < 0.3).mean()), []
    for seed in range(60):
        kept = sampled(units * 20, 0.0025, seed=seed, rotate=2)
        weights = np.concatenate([part.column("weight") for part in kept])
        hits = np.array([positive[key] for part in kept for key in part.keys.tolist()], dtype=float)
        found.append(float(weights @ hits) / float(weights.sum()))
    error = np.std(found) / np.sqrt(len(found))
    assert error < 0.03
    assert abs(np.mean(found) - truth) < 4 * error


def hash_of(name: str | None) -> float:
    return (zlib.crc32((name or "").encode()) % 1000) / 1000


@pytest.mark.parametrize("windows_s", [[], [1.0], [65.0, 3600.0]])
def test_a_sample_stands_for_ten_times_the_longest_window(windows_s: list[float]) -> None:
    assert period_us(windows_s) >= max(600e6, 10 * max(windows_s, default=0.0) * 1e6)


def test_windows_begin_anew_only_where_one_sample_follows_another() -> None:
    assert not SamplingState().rotates(600, 1200)  # all were judged before
    standing = SamplingState(0.0, 600, 1200)
    assert [standing.rotates(at, at + 600) for at in (600, 1200, 1800, 6000)] == [False, True, False, False]
    assert standing.rotates(1000, 5000)  # windows became longer: other periods
    assert standing.rotates(0, 600)  # the clock was set back
