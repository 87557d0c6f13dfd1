"""What sampling in an overload does to rates: sums of weights, bias, and coverage of their intervals.

Entities are admitted as the worker admits them (``outrider.monitor.worker.admission``): drawn anew each
period, weights offered by admitted per unit, and what nobody stands for carried to the next unit.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.assertions.statistics.group_rates import Sums, shares, too_few
from outrider.behavioral_tests.statistics import wilson_interval
from outrider.monitor.worker.admission import SamplingState, admitted

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
SEEDS = 400
BIAS_SEEDS = 200
LEAST_COVERAGE = 0.93
CASES = {50: (0.25, 0.5), 400: (0.1, 0.25, 0.5), 10_000: (0.0025, 0.1, 0.5)}
"""Shares that are admitted, by number of entities."""
RATES = (0.05, 0.3)


@dataclass(frozen=True)
class Traffic:
    """Records in units; ``entity`` and ``hit`` of every record."""

    units: list[Batch]
    entity: Rows
    hit: Floats

    @property
    def offered(self) -> int:
        """Records of all units."""
        return len(self.entity)


def traffic(entities: int, rate: float, *, seed: int, records: int, units: int) -> Traffic:
    """Entities of unequal size and own rates around ``rate`` (beta, intra-class correlation 0.1)."""
    rng = np.random.default_rng([seed, entities, int(1000 * rate)])
    activity = rng.gamma(2.0, size=entities)
    entity = rng.choice(entities, size=records, p=activity / activity.sum())
    own = rng.beta(9 * rate, 9 * (1 - rate), size=entities)
    hit = (rng.random(records) < own[entity]).astype(np.float64)
    names = np.array([f"e{number}" for number in range(entities)], dtype=object)
    whole = Batch.from_columns(
        {"id": [str(number) for number in range(records)], "entity": names[entity]}, model="m", rows=records
    )
    size = records // units
    return Traffic([whole.slice(at, size) for at in range(0, size * units, size)], entity, hit)


def judged(traffic: Traffic, share: float, *, seed: int, rotate: int) -> tuple[Rows, Floats, float]:
    """Records that are judged, their weights, and what is carried behind the last unit."""
    kept, weights, standing, begin = [], [], SamplingState(), 0
    for number, unit in enumerate(traffic.units):
        rows = admitted(unit, share, seed=seed, period=number // rotate)
        factor, carried = standing.factor(float(unit.rows), float(len(rows)))
        standing = SamplingState(carried)
        kept.append(begin + rows)
        weights.append(np.full(len(rows), factor))
        begin += unit.rows
    return np.concatenate(kept), np.concatenate(weights), standing.carried


def show_bias(seeds: int) -> None:
    """A share that admits none of 400 entities in one period of three."""
    share, errors, sums, told = 0.0025, [], [], []
    for seed in range(seeds):
        sent = traffic(400, 0.3, seed=seed, records=20_000, units=200)
        rows, weights, carried = judged(sent, share, seed=seed, rotate=2)
        sums.append((float(weights.sum()) + carried) / sent.offered)
        told.append(float(weights.sum()) / sent.offered)
        errors.append(float(weights @ sent.hit[rows]) / float(weights.sum()) - float(sent.hit.mean()))
    error, half = float(np.mean(errors)), 1.96 * float(np.std(errors, ddof=1)) / seeds**0.5
    data = f"400 entities, share 0.0025, 100 periods, simulated, seeds 0 to {seeds - 1}"
    Figure(
        "statistics.shedding.bias", error, "of a rate of 0.3", "0", error, n=seeds,
        low=error - half, high=error + half, data=data,
    ).show()  # fmt: skip
    for name, found in (("weights_and_carried", sums), ("weights", told)):
        Figure(
            f"statistics.shedding.{name}", float(np.mean(found)), "of what was offered", "1",
            float(np.mean(found)), n=seeds, low=min(found), high=max(found), data=f"{data}; least and most",
        ).show()  # fmt: skip


def show_coverage(entities: int, share: float, rate: float, seeds: int, *, by_record: bool = False) -> None:
    """Runs whose interval holds the rate that all entities have, or that say "too few"."""
    covered, silent = 0, 0
    records = max(20_000, 2 * entities)
    for seed in range(seeds):
        sent = traffic(entities, rate, seed=10_000 + seed, records=records, units=40)
        rows, weights, _ = judged(sent, share, seed=seed, rotate=10)
        codes = np.zeros(len(rows), dtype=np.intp)
        given = None if by_record else sent.entity[rows].astype(np.intp)
        sums = Sums.of(sent.hit[rows], weights, codes, 1, entities=given)
        if not len(rows) or too_few(sums)[0]:
            silent += 1
            continue
        found = shares(sums)
        covered += bool(found.low[0] <= rate <= found.high[0])
    told = seeds - silent
    data = f"{entities} entities, share {share:g}, rate {rate:g}, 4 periods, simulated, {seeds} seeds"
    kind = "records_as_independent" if by_record else "coverage"
    name = f"statistics.shedding.{kind}.{entities}.{share:g}.{rate:g}"
    low, high = wilson_interval(covered, told) if told else (0.0, 1.0)
    share_covered = covered / told if told else 1.0
    Figure(
        name, share_covered, "share covered", "93 %", share_covered / LEAST_COVERAGE,
        None if by_record else 1.0, n=told, low=low, high=high,
        data=f"{data}, {silent} of them too few",
    ).show()  # fmt: skip


def main() -> None:
    """Print bias, sums and coverage."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = parser.parse_args().seeds
    show_bias(min(seeds, BIAS_SEEDS))
    for entities, allowed in CASES.items():
        for share in allowed:
            for rate in RATES:
                show_coverage(entities, share, rate, seeds)
    show_coverage(400, 0.25, 0.3, seeds, by_record=True)


if __name__ == "__main__":
    main()
