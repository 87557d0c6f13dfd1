"""What is shed, first to last, and how much of it: decisions are functions of the backlog and the pace."""

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.monitor.admission import LEAST_SHARE, Admission, Measure, admitted, weighted

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
    assert [measure.name for measure in sorted(Measure)] == ORDER


def test_an_old_record_that_holds_up_nobody_is_judged_and_not_skipped() -> None:
    assert controlled().decide(waiting_rows=1, oldest_s=60.0).measure is Measure.JUDGES


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
        assert decision.measure is not Measure.SKIP
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
        rows = admitted(batch, share, seed=3)
        inside = set(entity[rows]) - {None}
        left = np.setdiff1d(np.arange(batch.rows), rows)
        assert share == 1.0 or inside.isdisjoint(set(entity[left]) - {None})
        sets.append({batch.keys[row] for row in rows})
    assert sets[0] > sets[1] > sets[2]


def test_weights_make_rates_unbiased() -> None:
    batch = entities(100)
    truth, found = batch.column("inputs.x").sum(), []
    for seed in range(400):
        rows = admitted(batch, 0.5, seed=seed)
        kept = weighted(batch.take(rows), 0.5)
        found.append(float(kept.column("weight") @ kept.column("inputs.x")))
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - truth) < 4 * error
