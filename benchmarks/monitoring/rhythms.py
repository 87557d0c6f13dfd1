"""Alarms of shares that are not constant: a rhythm by the hour of day, spells of few entities, and faults.

Every ten minutes the service's own decision is asked about one assertion. Of the first day it knows no rhythm
yet, and onsets are looked for a day back: alarms of the first two days are told apart.
"""

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.dataops.alarms.minute_counts import ALL, MinuteCounts
from outrider.dataops.alarms.rate_alarms import AlarmRule, rate_alarms
from outrider.dataops.ledger.minutes import MINUTE_US

Floats = NDArray[np.float64]

MODELS, DAYS, DAY, STEP = 50, 5, 1440, 10
RULE = AlarmRule()
ENTITIES, SPELL = 20, 30
ODDS = 6.0
KINDS = {
    "steady": "a constant share",
    "rhythm": "a share that is half above and below its mean by the hour of day",
    "volumes": "the same, and volumes that are four fifths above and below theirs",
    "spells": f"{ENTITIES} entities that stay flagged for {SPELL} minutes on average",
}


def traffic(kind: str, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Entities flagged and seen in each minute of all days."""
    hour = 2 * np.pi * np.arange(DAYS * DAY) / DAY
    share = rng.choice([0.01, 0.05, 0.2])
    if kind == "spells":
        return spells(share, rng), np.full(DAYS * DAY, float(ENTITIES))
    shares = np.full(DAYS * DAY, share)
    if kind != "steady":
        shares *= 1 + 0.5 * np.sin(hour + rng.uniform(0, 2 * np.pi))
    volume = np.full(DAYS * DAY, float(rng.choice([8, 40, 150])))
    if kind == "volumes":
        volume *= 1 + 0.8 * np.sin(hour + rng.uniform(0, 2 * np.pi))
    seen = rng.poisson(volume)
    return rng.binomial(seen, shares).astype(np.float64), seen.astype(np.float64)


def spells(share: float, rng: np.random.Generator) -> Floats:
    """Entities in a spell in each minute."""
    ends = 1 / SPELL
    begins = ends * share / (1 - share)
    on = rng.random(ENTITIES) < share
    found = np.zeros(DAYS * DAY)
    for minute, chance in enumerate(rng.random((DAYS * DAY, ENTITIES))):
        on = np.where(on, chance > ends, chance < begins)
        found[minute] = on.sum()
    return found


def first_alarm(hits: Floats, seen: Floats, begin: int, end: int) -> int | None:
    """Minute of the first alarm."""
    for minute in range(begin, end + 1, STEP):
        counts = MinuteCounts("m", RULE.minutes, (minute - RULE.minutes) * MINUTE_US)
        known = min(minute, counts.minutes)
        for name, side in (("", seen), ("fires", hits)):
            row = np.zeros(counts.minutes)
            row[counts.minutes - known :] = side[minute - known : minute]
            counts.rows[name, ALL] = row
        if rate_alarms(counts, ["fires"], RULE, standing=set()):
            return minute
    return None


def with_fault(hits: Floats, seen: Floats, onset: int, rng: np.random.Generator) -> Floats:
    """Hits whose odds are ``ODDS`` times theirs from a minute on, at the mean share."""
    share = hits.sum() / seen.sum()
    odds = ODDS * share / (1 - share)
    more = (odds / (1 + odds) - share) / (1 - share)
    found = hits.copy()
    found[onset:] += rng.binomial((seen - hits)[onset:].astype(np.int64), more)
    return found


def main() -> None:
    """Print false alarms of the first two days and behind them, and the delay of a fault."""
    for number, (kind, words) in enumerate(KINDS.items()):
        rng = np.random.default_rng([47, number])
        first, later, delays = 0, 0, []
        for _ in range(MODELS):
            hits, seen = traffic(kind, rng)
            first += first_alarm(hits, seen, 60, 2 * DAY) is not None
            later += first_alarm(hits, seen, 2 * DAY + STEP, len(hits)) is not None
            onset = int(rng.integers(3 * DAY, 4 * DAY))
            told = first_alarm(with_fault(hits, seen, onset, rng), seen, onset + 1, onset + DAY // 2)
            delays.append(DAY // 2 if told is None else told - onset)
        data = f"{MODELS} models of {words}, {DAYS} days, seed 47"
        name = f"monitoring.rhythms.{kind}"
        Figure.of_share(
            f"{name}.first", first, MODELS, "models that alarm in their first two days", data=data
        ).show()
        Figure.of_share(
            f"{name}.later", later, MODELS, "models that alarm in three days behind these", data=data
        ).show()
        Figure(
            f"{name}.delay", float(np.median(delays)), f"minutes, median; odds x {ODDS:g}", "none", 0.0,
            n=MODELS, data=data,
        ).show()  # fmt: skip


if __name__ == "__main__":
    main()
