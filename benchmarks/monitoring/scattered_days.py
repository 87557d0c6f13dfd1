"""Alarms of performance where days scatter: false ones in 28 days, and the delay of a loss that doubles.

The service's own decision is asked behind each fourth block of 50 labels; the logarithm of the odds of the
loss is drawn anew each day. Four horizons of an alpha of 1 % allow 4 % of the streams.
"""

import math

import numpy as np

from benchmarks.figure import Figure
from benchmarks.monitoring.performance_alarms import BLOCK, first_alarm, losses_of
from outrider.dataops.alarms.loss_alarms import LossHistory, loss_alarms
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.alarms.version_losses import BlockLosses
from outrider.dataops.ledger.minutes import DAY_US

RULE = AlarmRule()
STREAMS, DAYS, STEP, ALLOWED = 30, 28, 4, 0.04
SEEDS = (61, 62)
KINDS = ((500, 0.1), (1_000, 0.05))
"""Labels a day, and usual loss."""
SCATTERS = {"steady": 0.0, "scattered": 0.3}
FAULTED = 12


def losses(
    rng: np.random.Generator, labels: int, loss: float, scatter: float, fault: float = np.inf
) -> BlockLosses:
    """Losses of all days, with twice the loss from a day on."""
    blocks = labels // BLOCK
    odds = math.log(loss / (1 - loss)) + scatter * rng.standard_normal(DAYS)
    rate = np.repeat(1 / (1 + np.exp(-odds)), blocks)
    day = np.arange(DAYS * blocks) / blocks
    lost = rng.binomial(BLOCK, np.where(day >= fault, 2 * rate, rate)).reshape(1, -1, 1)
    return losses_of(lost, np.full_like(lost, BLOCK), np.ones(1), (day * DAY_US).astype(np.int64))


def alarms(seed: int, labels: int, loss: float, scatter: float) -> int:
    """Streams with any alarm."""
    found = 0
    for stream in range(STREAMS):
        own = losses(np.random.default_rng([seed, stream]), labels, loss, scatter)
        looks = range(3, len(own.number) + 1, STEP)
        found += any(
            loss_alarms(LossHistory(own.where(own.number < look)), RULE, standing=set()) for look in looks
        )
    return found


def delays(labels: int, loss: float, scatter: float, fault: int) -> list[float]:
    """Days until a doubled loss is found; all that are left where it is not."""
    found = []
    for stream in range(FAULTED):
        own = losses(np.random.default_rng([67, stream]), labels, loss, scatter, fault)
        blocks = first_alarm(own, fault * labels // BLOCK + 1)
        found.append(DAYS - fault if blocks is None else blocks * BLOCK / labels - fault)
    return found


def main() -> None:
    """Print false alarms and delays."""
    for kind, scatter in SCATTERS.items():
        words = f"log-odds of a day scatter by {scatter:g}"
        total = sum(alarms(seed, *each, scatter) for seed in SEEDS for each in KINDS)
        Figure.of_share(
            f"monitoring.scattered_days.{kind}", total, STREAMS * len(SEEDS) * len(KINDS),
            f"streams that alarm in {DAYS} days", base=ALLOWED,
            data=f"{words}; 500 labels a day lost by 10 %, 1,000 by 5 %; seeds 61 and 62",
        ).show()  # fmt: skip
        for fault in (4, 16):
            told = [one for each in KINDS for one in delays(*each, scatter, fault)]
            name, data = f"monitoring.scattered_days.{kind}", f"{words}; loss doubles on day {fault}, seed 67"
            Figure(
                f"{name}.delay.{fault}", float(np.median(told)), "days, median", "none", 0.0, n=len(told),
                data=data,
            ).show()  # fmt: skip
            known = sum(one < DAYS - fault for one in told)
            Figure.of_share(
                f"{name}.found.{fault}", known, len(told), f"found by day {DAYS}", data=data
            ).show()


if __name__ == "__main__":
    main()
