"""Live tests: false alarms of a test that is watched for ever, how soon it alarms, and what asking costs.

A naive reader looks at a Wilson interval of everything seen so far, again and again; the sequence is looked
at as often. Who knew the true rate before would need ``log(40)`` over the divergence of the two rates.
"""

import math

import numpy as np
from numpy.typing import NDArray

from benchmarks.behavioral._medians import medians
from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.assertions.statistics.rate_sequence import log_wealth
from outrider.behavioral_tests.statistics import wilson_interval
from outrider.monitor.host.client import PerturbedCopies
from outrider.monitor.worker.live_tests import together

RUNS, STEPS, EVERY = 2000, 20_000, 20
REACHED = math.log(40)
TOLERANCE = 0.05
WEIGHTS = np.array([1.0, 2.0, 16.0, 64.0])


def false_alarms(weights: NDArray[np.float64], seed: int) -> tuple[float, float]:
    """Share of streams at the tolerance that ever alarm: of the naive reader, and of the sequence."""
    rng = np.random.default_rng(seed)
    passed = np.zeros((RUNS, len(weights)), dtype=np.int64)
    failed = passed.copy()
    naive, sure = np.zeros(RUNS, dtype=bool), np.zeros(RUNS, dtype=bool)
    for asked in range(EVERY, STEPS + 1, EVERY):
        # budgets move with the traffic: the odds change every 500 questions
        now = asked // 500 % len(weights)
        found = rng.binomial(EVERY, TOLERANCE, RUNS)
        failed[:, now] += found
        passed[:, now] += EVERY - found
        total = failed.sum(axis=1)
        naive |= wilson_interval(total, asked)[0] > TOLERANCE
        open_ = ~sure
        sure[open_] = log_wealth(passed[open_], failed[open_], weights, TOLERANCE) >= REACHED
    return float(naive.mean()), float(sure.mean())


def questions_until_alarm(rate: float, seed: int, *, runs: int = 400, weight: float = 16.0) -> float:
    """Median number of questions after which the sequence alarms."""
    rng = np.random.default_rng(seed)
    failed = np.zeros((runs, 1), dtype=np.int64)
    at = np.full(runs, np.inf)
    asked = 0
    while np.isinf(at).any() and asked < STEPS:
        asked += 5
        failed[:, 0] += rng.binomial(5, rate, runs)
        hit = log_wealth(asked - failed, failed, np.array([weight]), TOLERANCE) >= REACHED
        at[hit & np.isinf(at)] = asked
    return float(np.median(at))


def asking(tests: int, *, is_large: bool) -> tuple[float, float]:
    """Seconds to answer the copies of a unit of 1,024 records: one call per test, and one for all."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    if is_large:
        layers = [torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(10_816, 10)]
    else:
        layers = [torch.nn.Flatten(), torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(*layers).eval().to(device)
    rng = np.random.default_rng(0)
    questions = {}
    for number in range(tests):
        rows = np.flatnonzero(rng.random(1024) < 0.01)
        images = rng.random((len(rows), 784), dtype=np.float32)
        batch = Batch.from_columns({"inputs.image": images}, model="digits", rows=len(rows))
        questions[f"test_{number}"] = PerturbedCopies(rows, batch)

    def answer(batch: Batch) -> None:
        with torch.inference_mode():
            images = torch.from_numpy(batch.tensor("inputs.image").reshape(-1, 1, 28, 28).copy())
            model(images.to(device)).cpu()

    def one_by_one() -> None:
        for asked in questions.values():
            assert asked.batch is not None
            answer(asked.batch)

    def at_once() -> None:
        for copies in together(questions):
            answer(copies.batch)

    apart, joined = medians([one_by_one, at_once], 101)
    return apart, joined


def main() -> None:
    """Print the figures."""
    stream = f"{STEPS:,} questions that fail at {TOLERANCE:.0%}, looked at every {EVERY}, seed 1"
    data = f"simulated: {RUNS:,} streams of {stream}"
    for name, weights in (("one_weight", np.array([20.0])), ("weights_1_to_64", WEIGHTS)):
        naive, sure = false_alarms(weights, seed=1)
        for reader, share in (("naive", naive), ("sequence", sure)):
            low, high = wilson_interval(round(share * RUNS), RUNS)
            title = f"behavioral.live.alarms.{name}.{reader}"
            Figure(
                title,
                share,
                "share",
                "the 2.5 % promised",
                share / 0.025,
                n=RUNS,
                low=low,
                high=high,
                data=data,
            ).show()
    for rate in (0.075, 0.1, 0.2):
        divergence = rate * math.log(rate / TOLERANCE) + (1 - rate) * math.log((1 - rate) / (1 - TOLERANCE))
        median = questions_until_alarm(rate, seed=2)
        oracle = REACHED / divergence
        title = f"behavioral.live.power.{rate * 100:g}"
        data = f"simulated: 400 streams that fail at {rate:.1%}, weights of 16, seed 2"
        Figure(title, median, "questions", "known rate", median / oracle, n=400, data=data).show()
    for name, is_large in (("784-32-10", False), ("convolution", True)):
        for tests in (2, 8):
            apart, joined = asking(tests, is_large=is_large)
            title = f"behavioral.live.asking.{name}.{tests}_tests"
            Figure(title, joined * 1e3, "ms", "a call per test", joined / apart).show()


if __name__ == "__main__":
    main()
