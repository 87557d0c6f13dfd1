"""The trigger of flag rates: models below its start that fire, and hours until those above do.

Models are simulated by the minute for two weeks and looked at every quarter of an hour, by the service's own
decision; the promise is a chance of 0.1 % a day. Those above rise after a steady week.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure, show_table
from outrider.behavioral_tests.statistics import wilson_interval
from outrider.dataops.triggers.signals import (
    ERROR_PER_DAY,
    Figures,
    FlagRateRule,
    rates_signal,
)

Floats = NDArray[np.float64]
Minutes = tuple[Floats, Floats, Floats]
"""Flags, records and entities by minute."""
RULE = FlagRateRule("margin", start=0.10, rearm=0.05, hours=24.0, min_records=100)
MODELS, DAYS, DAY, LOOK = 200, 14, 1440, 15
HISTORY = RULE.history
RISEN, RATES, VOLUMES = 40, (0.12, 0.15, 0.2), (100, 1_000, 10_000)


def even(rng: np.random.Generator, rate: Floats, per_hour: float = 100.0) -> Minutes:
    """Entities with a record each."""
    seen: Floats = np.asarray(rng.poisson(per_hour / 60.0, len(rate)), dtype=np.float64)
    flags: Floats = np.asarray(rng.binomial(seen.astype(int), rate), dtype=np.float64)
    return flags, seen, seen


def many(rng: np.random.Generator, rate: Floats) -> Minutes:
    """Entities with 200 records each, of which one has all flagged."""
    flags, _, seen = even(rng, rate)
    return 200.0 * flags, 200.0 * seen, seen


def unlike(rng: np.random.Generator, rate: Floats) -> Minutes:
    """Entities with 20 records each, flagged by a chance of each entity's own."""
    _, _, seen = even(rng, rate)
    minute = np.repeat(np.arange(len(rate)), seen.astype(int))
    flags = rng.binomial(20, rng.beta(rate[minute], 1.0 - rate[minute]))
    summed = np.bincount(minute, flags, minlength=len(rate)).astype(np.float64)
    return summed, 20.0 * seen, seen


def bursts(rng: np.random.Generator, rate: Floats) -> Minutes:
    """Ten minutes each in which half is flagged, for half of all flags."""
    is_burst = np.repeat(rng.random(len(rate) // 10 + 1) < rate[::10].max(), 10)[: len(rate)]
    return even(rng, np.where(is_burst, 0.5, rate / 2.0 / (1.0 - rate)))


def long(rng: np.random.Generator, rate: Floats) -> Minutes:
    """Forty entities at a time, seen every minute for two hours on average, flagged always or never."""
    flags, minutes = np.zeros(len(rate)), len(rate)
    for _ in range(40):
        ends = np.cumsum(np.ceil(rng.exponential(120.0, minutes // 60 + 200))).astype(int)
        session = np.searchsorted(ends, np.arange(minutes), side="right")
        flags += (rng.random(len(ends)) < rate[0])[session]
    seen = np.full(minutes, 40.0)
    return flags, seen, seen


def first_fired(minutes: Minutes, begin: int = 0) -> int | None:
    """Minutes after a time until the trigger first fires."""
    flags, records = (np.concatenate([[0.0], np.cumsum(side)]) for side in minutes[:2])
    for until in range(begin + LOOK, len(minutes[0]) + 1, LOOK):
        since = max(0, until - RULE.minutes)
        if flags[until] - flags[since] <= RULE.start * (records[until] - records[since]):
            continue  # a share at or below the start never fires
        known = (side[max(0, until - HISTORY) : until] for side in minutes)
        if rates_signal([RULE], {RULE.assertion: Figures.of(RULE, *known)}, {}).is_due:
            return until - begin
    return None


def false_runs() -> None:
    """Print the days on which models fire although their rate is below the start."""
    kinds: list[tuple[Callable[..., Minutes], tuple[float, ...]]] = [
        (even, (0.0, 0.08, 0.09, 0.099)), (many, (0.09,)), (unlike, (0.09,)), (bursts, (0.09,)),
        (long, (0.09,)),
    ]  # fmt: skip
    rows = [
        "| records | chance of a flag | models that fire | in error, by design at most |",
        "|---|---:|---:|---:|",
    ]
    for draw, rates in kinds:
        for rate in rates:
            rng = np.random.default_rng(31)
            fired = sum(first_fired(draw(rng, np.full(DAYS * DAY, rate))) is not None for _ in range(MODELS))
            low, _ = wilson_interval(fired, MODELS * DAYS)
            Figure(
                f"monitoring.triggers.{draw.__name__}_{1000 * rate:.0f}", fired, "models that fire",
                f"{ERROR_PER_DAY:.1%} of {MODELS * DAYS:,} days", 1.0 if low <= ERROR_PER_DAY else 0.0, 1.0,
                MODELS, data=f"{MODELS} models at {rate:.1%} for {DAYS} days, start 10 %: {draw.__doc__}",
            ).show()  # fmt: skip
            words = str(draw.__doc__).rstrip(".").lower()
            most = ERROR_PER_DAY * DAYS * MODELS
            rows.append(f"| {words} | {rate:.1%} | {fired} of {MODELS} | {most:.1f} |")
    show_table("errors", "\n".join(rows))


def power() -> None:
    """Print the hours until models above the start fire."""
    rows = ["| entities an hour | rate | fired within three days | median hours | nine of ten within |",
            "|---:|---:|---:|---:|---:|"]  # fmt: skip
    for per_hour in VOLUMES:
        for rate in RATES:
            rng, found = np.random.default_rng(32), []
            for _ in range(RISEN):
                rates = np.repeat([0.05, rate], [7 * DAY, 3 * DAY])
                minutes = first_fired(even(rng, rates, per_hour), 7 * DAY)
                found.append(np.inf if minutes is None else minutes / 60.0)
            name = f"monitoring.triggers.{1000 * rate:.0f}_at_{per_hour}"
            data = f"{RISEN} models at 5 % for a week, then at {rate:.0%}, {per_hour:,} entities an hour"
            Figure.of_share(
                f"{name}.found", int(np.isfinite(found).sum()), RISEN, "fired within three days", data=data
            ).show()
            middle, slow = (float(np.quantile(found, q, method="higher")) for q in (0.5, 0.9))
            told = [f"{one:.1f}" if np.isfinite(one) else "over 72" for one in (middle, slow)]
            share = np.isfinite(found).mean()
            rows.append(f"| {per_hour:,} | {rate:.0%} | {share:.0%} | {told[0]} | {told[1]} |")
    show_table("power", "\n".join(rows))


if __name__ == "__main__":
    false_runs()
    power()
