"""False alarms and delays of the detectors behind alarms, on simulated block statistics.

A run is a model with 20 columns (10 shares of 1 to 50 %, 10 columns of ranks in 8 bins) and 1,000 blocks,
against a reference of 10,000 rows of its own draw, looked at after every block with alpha = 1 % over all
columns and blocks. What is simulated is what the detector reads: counts of a block by value.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.assertions.detection import Reference, ShiftDetector, onset_interval, rising
from outrider.assertions.detection.reference import moments
from outrider.assertions.detection.shift import log_gains
from outrider.behavioral_tests.statistics import wilson_interval

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

ALPHA, COLUMNS, BLOCKS, ROWS, REFERENCE = 0.01, 20, 1_000, 64, 10_000
SEASONS, BINS, RUN_ROWS = 24, 8, 8
NEEDED = float(np.log(COLUMNS / ALPHA))
BINARY = np.array([0.0, 1.0])
RANKS = (np.arange(BINS) + 0.5) / BINS
SHIFTS = (0.25, 0.5)


@dataclass(frozen=True, slots=True)
class Column:
    """Values of a column, the weight of each, and its chance by season, shape (seasons, values)."""

    values: Floats
    weight: Floats
    chance: Floats


def column(number: int, kind: str) -> Column:
    """Column of a scenario: ``plain``, ``weighted``, ``runs`` or ``season``."""
    if number % 2:
        chance, values = np.full(BINS, 1.0 / BINS), RANKS
    else:
        share = float(np.geomspace(0.01, 0.5, COLUMNS // 2)[number // 2])
        chance, values = np.array([1.0 - share, share]), BINARY
    if kind == "weighted":  # high values are captured always, the others one in eight
        kept = np.where(values > 0.7, 1.0, 0.125)
        return Column(values, 0.125 / kept, (chance * kept / (chance @ kept))[None, :])
    if kind == "season":
        swing = 0.5 * np.sin(2 * np.pi * np.arange(SEASONS) / SEASONS)
        tilted = chance * np.exp(swing[:, None] * values)
        return Column(values, np.ones(len(values)), tilted / tilted.sum(axis=1, keepdims=True))
    return Column(values, np.ones(len(values)), chance[None, :])


def draw(rng: np.random.Generator, own: Column, kind: str, runs: int, *, season: int) -> Counts:
    """Counts of one block of each run, shape (runs, values)."""
    rows: int | Counts = ROWS
    if kind == "runs":  # the first record of each entity's run: how many begin in a block
        rows = rng.binomial(ROWS, 1.0 / RUN_ROWS, runs)
    if len(own.values) == 2:
        hits = rng.binomial(rows, own.chance[season, 1], runs)
        return np.stack([rows - hits, hits], axis=-1)
    return rng.multinomial(rows, own.chance[season], None if kind == "runs" else runs)


def reference_counts(rng: np.random.Generator, own: Column, kind: str, runs: int) -> Counts:
    """Counts of the references, shape (runs, seasons, values)."""
    seasons = len(own.chance)
    rows = REFERENCE // seasons // (RUN_ROWS if kind == "runs" else 1)
    return np.stack([rng.multinomial(rows, chance, runs) for chance in own.chance], axis=1)


def column_alarms(kind: str, number: int, runs: int, seed: int) -> NDArray[np.bool_]:
    """Runs in which a column ever alarms, shape (runs,)."""
    rng = np.random.default_rng([seed, number])
    own = column(number, kind)
    reference = reference_counts(rng, own, kind, runs)
    bounds = [_Bound(own, reference, values) for values in (own.values, 1.0 - own.values)]
    near = np.zeros(runs, dtype=np.bool_)
    blocks = [draw(rng, own, kind, runs, season=block % len(own.chance)) for block in range(BLOCKS)]
    for block, counts in enumerate(blocks):
        season = block % len(own.chance)
        up, down = (bound.update(counts, season) for bound in bounds)
        near |= np.logaddexp(up, down) - np.log(2.0) >= NEEDED
    alarms = np.zeros(runs, dtype=np.bool_)
    if near.any():
        found = np.zeros(int(near.sum()), dtype=np.bool_)
        detector = ShiftDetector(reference[near], own.values, horizon=BLOCKS, weight=own.weight)
        for block, counts in enumerate(blocks):
            found |= detector.update(counts[near], season=block % len(own.chance)) >= NEEDED
        alarms[near] = found
    return alarms


class _Bound:
    """Upper bound of a detector's evidence: the fortune against the reference's own mean alone."""

    def __init__(self, own: Column, counts: Counts, values: Floats) -> None:
        mean, spread, noise = moments(counts.astype(np.float64), values, own.weight)
        one = Reference(mean[..., None], np.zeros(2), spread, noise)
        self._log_gain = log_gains(one, values, own.weight, np.zeros(len(counts)))[..., 0, :]
        self._fortunes = np.zeros((len(counts), self._log_gain.shape[-1]))

    def update(self, counts: Counts, season: int) -> Floats:
        gain = np.exp(np.einsum("kv,kvb->kb", counts, self._log_gain[:, season]))
        self._fortunes = np.minimum((self._fortunes + 1.0) * gain, 1e200)
        return np.asarray(np.log(self._fortunes.mean(axis=1)) - np.log(2.0 * BLOCKS))


def show_false_alarms(runs: int) -> None:
    """Print the share of runs with any alarm, by scenario."""
    for kind in ("plain", "weighted", "runs", "season"):
        alarms = np.zeros(runs, dtype=np.bool_)
        for number in range(COLUMNS):
            alarms |= column_alarms(kind, number, runs, seed=19)
        _, high = wilson_interval(int(alarms.sum()), runs)
        Figure(
            f"monitoring.false_alarms.{kind}", float(high), "upper 95 % bound, runs that alarm", "1.2 %",
            0.012 / float(high), 1.0, n=runs, low=0.0, high=float(high),
            data=f"{int(alarms.sum())} of {runs:,} runs x {COLUMNS} columns x {BLOCKS:,} blocks, seed 19",
        ).show()  # fmt: skip


def cusum_blocks(rng: np.random.Generator, share: float, shifted: float, runs: int) -> Iterator[Floats]:
    """Statistic of an oracle CUSUM that knows both shares, block by block without a change."""
    gain, loss = np.log(shifted / share), np.log((1 - shifted) / (1 - share))
    statistic = np.zeros(runs)
    while True:
        hits = rng.binomial(ROWS, share, runs)
        statistic = np.maximum(statistic, 0.0) + hits * gain + (ROWS - hits) * loss
        yield statistic


def oracle_threshold(share: float, shifted: float) -> float:
    """Threshold of the CUSUM with the detector's own chance of a false alarm in a column."""
    rng = np.random.default_rng(23)
    runs, largest = 40_000, np.full(40_000, -np.inf)
    blocks = cusum_blocks(rng, share, shifted, runs)
    for _ in range(BLOCKS):
        largest = np.maximum(largest, next(blocks))
    return float(np.quantile(largest, 1.0 - ALPHA / COLUMNS))


def delays(share: float, shift: float, runs: int, *, quiet: int = 100) -> tuple[Floats, Floats]:
    """Blocks from the change to the alarm, of the detector and of the oracle, shape (runs,)."""
    shifted = share + shift * (share * (1 - share)) ** 0.5
    rng = np.random.default_rng(29)
    hits = rng.binomial(REFERENCE, share, runs)
    reference = np.stack([REFERENCE - hits, hits], axis=-1)[:, None, :]
    detector = ShiftDetector(reference, BINARY, horizon=BLOCKS)
    threshold = oracle_threshold(share, shifted)
    gain, loss = np.log(shifted / share), np.log((1 - shifted) / (1 - share))
    statistic = np.zeros(runs)
    found = np.full((2, runs), np.inf)
    for block in range(-quiet, 100):
        hits = rng.binomial(ROWS, share if block < 0 else shifted, runs)
        evidence = detector.update(np.stack([ROWS - hits, hits], axis=-1))
        statistic = np.maximum(statistic, 0.0) + hits * gain + (ROWS - hits) * loss
        if block >= 0:
            for row, is_over in enumerate((evidence >= NEEDED, statistic >= threshold)):
                found[row] = np.where(is_over, np.minimum(found[row], block + 1), found[row])
    return found[0], found[1]


def show_delays() -> None:
    """Print mean delays against the oracle's."""
    for shift in SHIFTS:
        for share in (0.05, 0.3):
            own, oracle = delays(share, shift, 4_000)
            ratio = float(own.mean() / oracle.mean())
            Figure(
                f"monitoring.false_alarms.delay.{share:g}.{shift:g}", float(own.mean()), "blocks of 64",
                "2x an oracle CUSUM with as many false alarms", 2.0 / ratio, 1.0, n=len(own),
                data=f"share {share:.0%}, shift of {shift:g} sigma; the oracle takes {oracle.mean():.2f}: "
                f"{ratio:.2f}x, seed 29",
            ).show()  # fmt: skip


def usual_alarms(runs: int, blocks: int, seed: int) -> int:
    """Runs of 20 shares without a change in which one is ever found to have risen since some block."""
    rng = np.random.default_rng(seed)
    share = np.geomspace(0.01, 0.5, COLUMNS)
    alarms = 0
    for _ in range(runs):
        seen = rng.poisson(20, (COLUMNS, blocks)).astype(np.float64)
        hits = rng.binomial(seen.astype(np.int64), share[:, None]).astype(np.float64)
        alarms += any(
            (rising(hits[:, :end], seen[:, :end], horizon=blocks, needed=NEEDED) >= NEEDED).any()
            for end in range(2, blocks + 1)
        )
    return alarms


def onset_coverage(runs: int, seed: int) -> int:
    """Runs whose interval, at the alarm, holds the true onset."""
    rng = np.random.default_rng(seed)
    covered = 0
    for _ in range(runs):
        share, onset = float(rng.choice([0.02, 0.1, 0.3])), int(rng.integers(40, 160))
        odds = share / (1 - share) * float(rng.choice([2.0, 3.0, 6.0]))
        chance = np.where(np.arange(320) < onset, share, odds / (1 + odds))
        seen = rng.poisson(20, 320).astype(np.float64)
        hits = rng.binomial(seen.astype(np.int64), chance).astype(np.float64)
        for end in range(onset + 1, 321):
            counts = hits[:end], seen[:end]
            if rising(counts[0][None], counts[1][None], horizon=1_440, needed=NEEDED)[0] >= NEEDED:
                break
        found = onset_interval(*counts)
        covered += found.first <= onset <= found.last
    return covered


def show_usual(runs: int) -> None:
    """Print false alarms and onsets of the rule that has no reference but what came before."""
    blocks = 200
    alarms = usual_alarms(runs, blocks, seed=31)
    _, high = wilson_interval(alarms, runs)
    Figure(
        "monitoring.false_alarms.usual", float(high), "upper 95 % bound, runs that alarm", "1.2 %",
        0.012 / float(high), 1.0, n=runs, low=0.0, high=float(high),
        data=f"{alarms} of {runs:,} runs x {COLUMNS} shares x {blocks} blocks of 20 records, seed 31",
    ).show()  # fmt: skip
    covered = onset_coverage(runs, seed=37)
    Figure.of_share(
        "monitoring.false_alarms.onset", covered, runs, "intervals that hold the onset",
        base=0.93, target=1.0,
        data="shares of 2 to 30 %, odds times 2 to 6, 20 records a block, at the alarm, seed 37",
    ).show()  # fmt: skip


def show_cost() -> None:
    """Print what a block costs for 20 columns."""
    detector = ShiftDetector(np.full((COLUMNS, 1, BINS), REFERENCE // BINS), RANKS, horizon=BLOCKS)
    counts = np.full((COLUMNS, BINS), ROWS // BINS)
    took = []
    for _ in range(5):
        began = process_time()
        for _ in range(500):
            detector.update(counts)
        took.append((process_time() - began) / 500 / ROWS * 1e6)
    Figure(
        "monitoring.false_alarms.cost", float(np.median(took)), "µs of CPU per record", "0.5 µs",
        0.5 / float(np.median(took)), None, data="blocks of 64, 20 columns of 8 bins, both sides",
    ).show()  # fmt: skip


def main() -> None:
    """Print false alarms, delays, onsets and cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    show_cost()
    show_delays()
    show_usual(min(runs, 1_000))
    show_false_alarms(runs)


if __name__ == "__main__":
    main()
