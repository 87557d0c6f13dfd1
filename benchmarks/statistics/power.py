"""Hours until a fault is told: of shares of flags, losses, columns and drift reports, by entities an hour.

Nothing changes before the onset; then a share is 1.5, 2 or 5 times the one before. Each decision is the one
of the service. An empty cell: told in fewer than half of the runs within the limit.
"""

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.figure import Figure, show_table
from outrider.assertions.drift import ShareStreams, ShareWatch, WatchRule, drift_report
from outrider.dataops.alarms.loss_alarms import LossHistory, loss_alarms
from outrider.dataops.alarms.minute_counts import ALL, MinuteCounts
from outrider.dataops.alarms.rate_alarms import AlarmRule, rate_alarms
from outrider.dataops.alarms.version_losses import BlockLosses
from outrider.dataops.ledger.minutes import MINUTE_US

Floats = NDArray[np.float64]
Told = Callable[[int, float, np.random.Generator], float | None]
"""Hours until a share that is so many times the usual one is told, at so many entities an hour."""

RUNS, SEED = 20, 61
RATES, TIMES = (100, 1_000, 10_000), (1.5, 2.0, 5.0)
RULE = AlarmRule()
DAY = 1440
LIMIT_H = 48
FLAGGED, LOST, CATEGORY = 0.02, 0.05, 0.1
BLOCK, COLUMNS, WEEK_H = 50, 50, 168


def flags(rate: int, times: float, rng: np.random.Generator) -> float | None:
    """Hours until flags of an assertion alarm, asked every ten minutes; a day before."""
    minutes = DAY + LIMIT_H * 60
    share = np.where(np.arange(minutes) < DAY, FLAGGED, times * FLAGGED)
    seen = rng.poisson(rate / 60, minutes)
    hits = rng.binomial(seen, share)
    for minute in range(DAY + 10, minutes + 1, 10):
        counts = MinuteCounts("m", RULE.minutes, (minute - RULE.minutes) * MINUTE_US)
        known = min(minute, counts.minutes)
        for name, side in (("", seen), ("fires", hits)):
            row = np.zeros(counts.minutes)
            row[counts.minutes - known :] = side[minute - known : minute]
            counts.rows[name, ALL] = row
        if rate_alarms(counts, ["fires"], RULE, standing=set()):
            return (minute - DAY) / 60
    return None


def losses(rate: int, times: float, rng: np.random.Generator, *, days: int) -> float | None:
    """Hours until the loss of a version alarms, asked behind each block; so many days before, by the hour."""
    size = min(BLOCK, rate)
    known, since = 24 * days, round(LIMIT_H * rate / size)
    seen = np.concatenate([np.full(known, float(rate)), np.full(since, float(size))])
    share = np.where(np.arange(len(seen)) < known, LOST, times * LOST)
    lost = rng.binomial(seen.astype(np.int64), share).astype(np.float64)
    hours = np.concatenate([np.arange(known), known + np.arange(since) * size / rate])
    begun = (hours * 3.6e9).astype(np.int64)
    every = BlockLosses(
        "1", np.arange(len(seen)), begun, begun + 1, begun, begun, (ALL,), lost[None, :, None],
        seen[None, :, None], np.ones(1), None,
    )  # fmt: skip
    at = known
    while at < len(seen):
        at += max(1, (at - known) // 20)
        own = every.where(np.arange(len(seen)) < at)
        if loss_alarms(LossHistory(own), RULE, standing=set()):
            return float((at - known) * size / rate)
    return None


def columns(rate: int, times: float, rng: np.random.Generator) -> float | None:
    """Hours until the share of a category opens a ticket of drift, among fifty watched; a week before."""
    streams = ShareStreams(np.full(COLUMNS, 0.05), np.arange(COLUMNS), np.arange(COLUMNS), np.ones(COLUMNS))
    seen = np.full((COLUMNS, WEEK_H), float(rate))
    known = rng.binomial(rate, CATEGORY, seen.shape).astype(np.float64)
    watch = ShareWatch(known, seen, streams, WatchRule(RULE.alpha / 2, WEEK_H))
    share = np.full(COLUMNS, CATEGORY)
    share[0] *= times
    for hour in range(1, LIMIT_H + 1):
        if watch.look(rng.binomial(rate, share).astype(np.float64), seen[:, 0])[0]:
            return float(hour)
    return None


def reports(rate: int, times: float, rng: np.random.Generator) -> float | None:
    """Hours in the current window from which a drift report names the column; three days of reference."""
    reference = pd.DataFrame({"plan": rng.random(72 * rate) < CATEGORY})
    for hours in (1, 2, 4, 8, 16, 24):
        current = pd.DataFrame({"plan": rng.random(hours * rate) < times * CATEGORY})
        if drift_report(reference, current).is_drift:
            return float(hours)
    return None


MEASURES: dict[str, tuple[Told, str]] = {
    "flags": (flags, f"entities flagged, {FLAGGED:.0%} before"),
    "losses": (partial(losses, days=21), f"labelled records wrong, {LOST:.0%} for three weeks before"),
    "young_losses": (partial(losses, days=1), f"the same, {LOST:.0%} on the first day"),
    "columns": (columns, f"records of a category, {CATEGORY:.0%} before; ticket of drift"),
    "reports": (reports, f"the same in a drift report, {CATEGORY:.0%} before"),
}


def told(name: str, measure: Told, rate: int, times: float, runs: int) -> str:
    """Show one figure; its cell of the table."""
    rng = np.random.default_rng([SEED, sum(name.encode()), rate, round(10 * times)])
    hours = [measure(rate, times, rng) for _ in range(runs)]
    found = [each for each in hours if each is not None]
    median = float(np.median([LIMIT_H if each is None else each for each in hours]))
    Figure(
        f"statistics.power.{name}.{rate}.{times:g}x", median, "h, median", "", 0.0, n=runs,
        data=f"{len(found)} of {runs} told within {LIMIT_H} h, {rate:,} entities an hour, seed {SEED}",
    ).show()  # fmt: skip
    if 2 * len(found) < runs:
        return ""
    return f"{60 * median:.0f} min" if median < 1 else f"{median:.2g} h"


def main() -> None:
    """Print hours by measure, entities an hour and size of the fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args().runs
    lines = [
        f"| fault | entities an hour | {' | '.join(f'{times:g}x' for times in TIMES)} |",
        f"|---|---:|{'---:|' * len(TIMES)}",
    ]
    for name, (measure, words) in MEASURES.items():
        for rate in RATES:
            cells = map(partial(told, name, measure, rate, runs=runs), TIMES)
            lines.append(f"| {words} | {rate:,} | {' | '.join(cells)} |")
    show_table("hours", "\n".join(lines))


if __name__ == "__main__":
    main()
