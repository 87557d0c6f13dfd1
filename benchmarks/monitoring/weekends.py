"""Alarms of shares that differ on weekends, faults within them, and what steady shares pay.

The service's own decision is asked about one assertion every ten minutes, with sums by hour of all weeks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.assertions.detection import Hours
from outrider.dataops.alarms.minute_counts import ALL, MinuteCounts
from outrider.dataops.alarms.rate_alarms import AlarmRule, PastHours, Stream, rate_alarms
from outrider.dataops.ledger.minutes import MINUTE_US

Floats = NDArray[np.float64]

RULE = AlarmRule()
DAY, WEEK, HOUR, STEP = 1440, 7 * 1440, 60, 10
STREAMS, WEEKS = 12, 5
SHARES = ((0.05, 0.10), (0.05, 0.30), (0.01, 0.05))
VOLUMES = (8, 40, 150)
ODDS = 3.0


@dataclass(frozen=True, slots=True)
class Summed:
    """Hours of one stream."""

    hits: Floats
    seen: Floats

    def of(self, _: Stream, _since_us: int) -> Hours:
        """All of them."""
        return Hours(0, *(side.reshape(-1, HOUR).sum(axis=1) for side in (self.hits, self.seen)))


def traffic(number: int, *, is_steady: bool = False, moved: int = 0) -> tuple[Floats, Floats, Floats]:
    """Share, entities flagged and entities seen in each minute; days five and six are the weekend."""
    rng = np.random.default_rng([53, number])
    day = (np.arange(WEEKS * WEEK) + np.where(np.arange(WEEKS * WEEK) > 3 * WEEK, moved, 0)) // DAY % 7
    usual, weekend = SHARES[number % len(SHARES)]
    share = np.where((day >= 5) & (not is_steady), weekend, usual)
    seen = rng.poisson(VOLUMES[number // len(SHARES) % len(VOLUMES)], len(share))
    return share, rng.binomial(seen, share).astype(np.float64), seen.astype(np.float64)


def first_alarm(hits: Floats, seen: Floats, begin: int, end: int, past: PastHours | None) -> int | None:
    """Minute of the first alarm."""
    for minute in range(begin, min(end, len(seen)) + 1, STEP):
        counts = MinuteCounts("m", RULE.minutes, (minute - RULE.minutes) * MINUTE_US)
        known = min(minute, counts.minutes)
        for name, side in (("", seen), ("fires", hits)):
            row = np.zeros(counts.minutes)
            row[counts.minutes - known :] = side[minute - known : minute]
            counts.rows[name, ALL] = row
        if rate_alarms(counts, ["fires"], RULE, past=past, standing=set()):
            return minute
    return None


def alarmed_weekends(week: int, *, knows: bool, moved: int = 0) -> int:
    """Streams that alarm from Friday noon of a week, from 0, to Monday noon."""
    found = 0
    for number in range(STREAMS):
        _, hits, seen = traffic(number, moved=moved)
        begin = week * WEEK + 4 * DAY + 12 * HOUR
        past = Summed(hits, seen).of if knows else None
        found += first_alarm(hits, seen, begin, begin + 3 * DAY, past) is not None
    return found


def delays(day: float, *, is_steady: bool, knows: bool) -> list[int]:
    """Minutes until a fault is found that begins on a day of the fourth week; a day where it never is."""
    found = []
    for number in range(STREAMS):
        share, hits, seen = traffic(number, is_steady=is_steady)
        onset, rng = int(3 * WEEK + day * DAY), np.random.default_rng([59, number])
        odds = ODDS * share / (1 - share)
        more = (odds / (1 + odds) - share) / (1 - share)
        hits[onset:] += rng.binomial((seen - hits)[onset:].astype(np.int64), more[onset:])
        told = first_alarm(hits, seen, onset + 1, onset + DAY, Summed(hits, seen).of if knows else None)
        found.append(DAY if told is None else told - onset)
    return found


def show_weekends() -> None:
    """Print how many streams alarm on which weekend."""
    for week in range(WEEKS - 1):
        Figure.of_share(
            f"monitoring.weekends.week.{week + 1}", alarmed_weekends(week, knows=True), STREAMS,
            "streams that alarm on the weekend", data=f"{STREAMS} streams, week {week + 1}, seed 53",
        ).show()  # fmt: skip
    Figure.of_share(
        "monitoring.weekends.moved", alarmed_weekends(3, knows=True, moved=HOUR), STREAMS,
        "streams that alarm on a weekend an hour early", data=f"{STREAMS} streams, week 4, seed 53",
    ).show()  # fmt: skip


def show_delays() -> None:
    """Print the delay of faults, with and without the weeks before."""
    for name, day, is_steady in (
        ("steady", 3.4, True), ("weekday", 3.4, False), ("saturday", 5.0, False), ("sunday", 6.4, False),
        ("monday", 7.0, False),
    ):  # fmt: skip
        own, without = (delays(day, is_steady=is_steady, knows=knows) for knows in (True, False))
        found = sum(delay < DAY for delay in own)
        Figure(
            f"monitoring.weekends.delay.{name}", float(np.median(own)), "minutes, median",
            f"{np.median(without):g} without the weeks before", float(np.median(own) / np.median(without)),
            n=STREAMS, data=f"odds x {ODDS:g}, {found} of {STREAMS} found within a day, seed 59",
        ).show()  # fmt: skip


def main() -> None:
    """Print alarms of weekends, and the delay of faults."""
    show_delays()
    show_weekends()


if __name__ == "__main__":
    main()
