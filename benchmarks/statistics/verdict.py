"""Verdicts on candidates whose truth is known: false ones at any look, and records until one is found.

Labels: a part of the records is drawn anew at each answer. Scores: normal noise, apart beyond 1.
Texts: ten words of two kinds, apart where less than 0.6 of them are shared. Noise is the share of records on
which production differs from itself. All are asked twice, looked at after every block of 100 records.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.figure import Figure
from outrider.assertions.comparison import StreamComparison
from outrider.assertions.comparison.agreement import EVERYTHING, Measure, Tally, excess
from outrider.assertions.comparison.judged import JudgedPairs
from outrider.assertions.comparison.paired_outcomes import DirectedOutcomes
from outrider.assertions.comparison.slice_ranking import rank_slices
from outrider.assertions.comparison.verdict import ERROR, MOST_SLICES, verdict_of
from outrider.assertions.statistics.difference_sequence import DifferenceSequence
from outrider.assertions.statistics.rate_sequence import RateSequence

Kind = Literal["label", "score", "text"]
Spread = Literal["alike", "greedier", "more random"]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
BLOCK, EQUAL_ROWS, POWER_ROWS = 100, 3000, 12_000
MARGIN, WRONG, POWER = 0.01, 0.03, 0.9
RUNS, SLICE_RUNS = 1000, 100
NOISES = (0.0, 0.01, 0.05)


@dataclass(frozen=True, slots=True)
class Case:
    """Kind of answers, production's noise, and the candidate beside it."""

    kind: Kind
    noise: float
    spread: Spread = "alike"
    wrong: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}.{self.spread.replace(' ', '_')}.noise_{self.noise * 100:g}"


@lru_cache
def scale(kind: Kind, noise: float) -> float:
    """Spread of scores, or odds of a word, at which two answers differ so often."""
    if not noise:
        return 0.0
    if kind == "score":
        return float(1.0 / (2**0.5 * norm.isf(noise / 2)))
    rng = np.random.default_rng(0)
    words = rng.random((2, 100_000, 10))
    low, high = 0.0, 0.5
    for _ in range(20):
        middle = (low + high) / 2
        said = words < middle
        low, high = (middle, high) if text_apart(said[0], said[1]).mean() < noise else (low, middle)
    return low


def text_apart(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> Bools:
    """Texts of too few common words."""
    return np.asarray((a == b).mean(axis=-1) < 0.6)


def values(case: Case, rng: np.random.Generator, rows: int) -> tuple[Bools, Bools, Bools, Floats]:
    """Whether both differ, each differs from itself, and the excess of each record."""
    apart: Callable[..., Bools] = np.not_equal
    # Greedier: the likeliest answer always. More random: draws where production does not, or more widely.
    if case.kind == "label":
        close = rng.random(rows) < min(1.0, 4 * case.noise)
        odds = np.where(close, 0.1464, 0.0)  # two draws differ on a quarter of the close calls
        other = {"alike": odds, "greedier": 0.0 * odds, "more random": np.where(close, 0.1464, 0.0)}
        mine = 0.0 * odds if case.spread == "more random" else odds
        a, again = (rng.random(rows) < mine for _ in range(2))
        b, others = (rng.random(rows) < other[case.spread] for _ in range(2))
        wrong = rng.random(rows) < case.wrong
        b, others = b ^ wrong, others ^ wrong
    elif case.kind == "score":
        width = scale("score", case.noise)
        a, again = rng.normal(0, width, (2, rows))
        b, others = rng.normal(0, width, (2, rows)) + 9.0 * (rng.random(rows) < case.wrong)
        apart = far
    else:
        odds_of = scale("text", case.noise)
        a, again = rng.random((2, rows, 10)) < odds_of
        b, others = (rng.random((2, rows, 10)) < odds_of) ^ (rng.random(rows) < case.wrong)[None, :, None]
        apart = text_apart
    four = [apart(x, y) for x in (a, again) for y in (b, others)]
    own, his = apart(a, again), apart(b, others)
    return four[0], own, his, excess(four, own, his)


def far(a: Floats, b: Floats) -> Bools:
    """Scores beyond the tolerance."""
    return np.asarray(np.abs(a - b) > 1.0)


def tally_of(parts: tuple[Bools, Bools, Bools, Floats]) -> Tally:
    """Tally of records that both were asked about twice."""
    differs, own, other, beyond = parts
    one = np.ones(len(beyond))
    return Tally(
        RateSequence.of(differs, one),
        RateSequence.of(own, one),
        RateSequence.of(other, one),
        DifferenceSequence.of(beyond, one),
    )


def looks(case: Case, seed: int, rows: int) -> Iterator[StreamComparison]:
    """Comparison after every block."""
    rng = np.random.default_rng(seed)
    seen, measure = Tally(), measure_of(case)
    whole = values(case, rng, rows)
    for start in range(0, rows, BLOCK):
        part = slice(start, start + BLOCK)
        seen += tally_of((whole[0][part], whole[1][part], whole[2][part], whole[3][part]))
        yield StreamComparison({(measure, EVERYTHING): seen})


def measure_of(case: Case) -> Measure:
    """Measure of a kind of answers."""
    return case.kind


def true_difference(case: Case) -> float:
    """Difference beyond noise, of 400,000 records."""
    return float(values(case, np.random.default_rng(99), 400_000)[3].mean())


def is_ever_different(case: Case, seed: int, rows: int = EQUAL_ROWS) -> bool:
    """True where an equal candidate is called different at any look, or worse by its odd answers."""
    found = DirectedOutcomes()
    rng = np.random.default_rng([seed, 1])
    for seen in looks(case, seed, rows):
        failed = rng.random((2, BLOCK)) < max(case.noise, 0.01)
        found += DirectedOutcomes.of("failed", failed[0], failed[1])
        if found.verdicts(kinds=1, margin=MARGIN)["failed"].word == "worse" or may_differ(seen, case):
            return True
    return False


def may_differ(seen: StreamComparison, case: Case) -> bool:
    """True for the verdict different; asked only where the mean is above the margin at all."""
    tally = seen.tallies[measure_of(case), EVERYTHING]
    # A lower bound above the margin needs a mean above it.
    return (
        tally.beyond.mean > MARGIN and verdict_of(seen, margin=MARGIN, has_forecast=False).word == "different"
    )


def records_until_different(case: Case, seed: int) -> int:
    """Records until the verdict different, at most all."""
    for number, seen in enumerate(looks(case, seed, POWER_ROWS), start=1):
        if may_differ(seen, case):
            return number * BLOCK
    return POWER_ROWS


def fixed_size(case: Case) -> float:
    """Records of the test at one fixed size: mean at most the margin, one-sided, equal error."""
    beyond = values(case, np.random.default_rng(98), 400_000)[3]
    reach = norm.isf(ERROR) + norm.isf(1 - POWER)
    return float(reach**2 * beyond.var() / (beyond.mean() - MARGIN) ** 2)


EQUAL = (
    *(Case(kind, noise) for kind in ("label", "score", "text") for noise in NOISES),
    Case("label", 0.05, "greedier"),
    Case("label", 0.05, "more random"),
)
DIFFERENT = tuple(Case(kind, noise, wrong=WRONG) for kind in ("label", "score", "text") for noise in NOISES)


def slice_comparison(seed: int, rows: int = 10_000, *, worse: float = 0.3) -> StreamComparison:
    """Stream of twenty slices by one attribute and three by another, one of the twenty at fault."""
    rng = np.random.default_rng(seed)
    one, two = rng.integers(20, size=rows), rng.integers(3, size=rows)
    differs, own, other, _ = values(Case("label", 0.05), rng, rows)
    wrong = (one == 7) & (rng.random(rows) < worse)
    differs ^= wrong
    twice = rng.random(rows) < 0.3
    # On these four answers are two draws of each model, as independent as the first.
    again = values(Case("label", 0.05), rng, rows)
    beyond = np.where(wrong, 1.0, again[3])
    tallies: dict[tuple[Measure, str], Tally] = {}
    slices = [("", np.ones(rows, dtype=bool))]
    slices += [(f"a={k}", one == k) for k in range(20)] + [(f"b={k}", two == k) for k in range(3)]
    for name, here in slices:
        ones, asked = np.ones(int(here.sum())), here & twice
        few = np.ones(int(asked.sum()))
        tallies["label", name] = Tally(
            RateSequence.of(differs[here], ones),
            RateSequence.of(own[asked], few),
            RateSequence.of(other[asked], few),
            DifferenceSequence.of(beyond[asked], few),
        )
    return StreamComparison(tallies)


def is_named_first(seed: int) -> bool:
    """True where the slice at fault is proven worse than the rest, and first."""
    first = rank_slices(slice_comparison(seed), most_slices=MOST_SLICES)[0]
    return first.name == "a=7" and first.is_proven


def judged(seed: int, *, better: float, biased: float, rows: int = 2000, labels: int = 200) -> JudgedPairs:
    """Pairs of which the candidate's answer is better so often; a judge right on four of five, and biased."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(rows) < 0.5 + better / 2, 1.0, -1.0)
    said = np.where(rng.random(rows) < 0.8, truth, rng.choice([-1.0, 0.0, 1.0], size=rows))
    said = np.where(rng.random(rows) < biased, 1.0, said)
    chance = np.full(rows, labels / rows)
    return JudgedPairs.of(said, np.where(rng.random(rows) < chance, truth, np.nan), chance)


def equal(runs: int = RUNS) -> None:
    """Equal candidates that are called different or worse at any look."""
    for case in EQUAL:
        wrong = sum(is_ever_different(case, seed) for seed in range(runs))
        Figure.of_share(
            f"statistics.verdict.equal.{case}", runs - wrong, runs, "runs never called different or worse",
            base=1.0 - ERROR, target=1.0, data=f"true difference {true_difference(case):.4f}, "
            f"{EQUAL_ROWS} records, all asked twice, look after every {BLOCK}, margin 1 %, from seed 0",
        ).show()  # fmt: skip


def power(runs: int = RUNS) -> None:
    """Median records until a difference of 3 % is found, against the test of fixed size."""
    for case in DIFFERENT:
        needed = float(np.median([records_until_different(case, seed) for seed in range(runs)]))
        fixed = fixed_size(case)
        Figure(
            f"statistics.verdict.power.{case}", needed, "records, median", f"{fixed:.0f} of the fixed size",
            2 * fixed / needed, 1.0, runs,
            data=f"ratio: twice the fixed size (one-sided 1 %, power 0.9) over the median; 3 %, margin 1 %, "
            f"look after every {BLOCK}, seeds 0-{runs - 1}",
        ).show()  # fmt: skip


def where(runs: int = SLICE_RUNS) -> None:
    """Runs in which the slice at fault is named first."""
    named = sum(is_named_first(seed) for seed in range(runs))
    Figure.of_share(
        "statistics.verdict.slice_named_first", named, runs, "share of runs", base=0.9, target=1.0,
        data="10,000 records, 30 % asked twice, noise 5 %, 23 slices, one of 5 % 30 points worse",
    ).show()  # fmt: skip


def judge(runs: int = RUNS) -> None:
    """Runs in which a biased judge with 200 labels turns no verdict, and finds a true one."""
    calm = sum(
        judged(seed, better=0.0, biased=0.05).verdict().direction == "no difference shown"
        for seed in range(runs)
    )
    found = sum(judged(seed, better=0.4, biased=0.05).verdict().direction == "better" for seed in range(runs))
    data = "2,000 judged pairs, 200 labels expected, 5 % of them always for the candidate"
    Figure.of_share(
        "statistics.verdict.judge.no_verdict_turned", calm, runs, "share of runs", base=0.95, target=1.0,
        data=data,
    ).show()  # fmt: skip
    Figure.of_share(
        "statistics.verdict.judge.found", found, runs, "share of runs, candidate better in 70 %", data=data
    ).show()


if __name__ == "__main__":
    where()
    judge()
    power()
    equal()
