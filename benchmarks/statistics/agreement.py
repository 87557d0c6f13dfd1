"""Agreement beyond noise against a truth that is known: equal and different challengers, and what it costs.

Two models answer as random draws given the record. Labels: one record in fifty is a close call with odds of
its own. Scores: normal noise, apart beyond a tolerance of 1. Texts: ten words of two kinds each, apart where
less than 0.6 of them are shared. Weights are 1 and 4; a run is wrong if any look is.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.figure import Figure, show_table
from outrider.assertions.comparison.agreement import Agreement, Tally, Terms, excess, terms_of
from outrider.assertions.statistics.difference_sequence import DifferenceSequence
from outrider.assertions.statistics.rate_sequence import RateSequence
from outrider.behavioral_tests.statistics import wilson_interval

LOOKS, MARGIN = 8, 0.02
EQUAL_RUNS, RUNS, POWER_RUNS = 200, 100, 40
SHARE = 0.1
Answers = tuple[Any, Any, Any, Any]
Draw = Callable[[np.random.Generator, int], Answers]
Apart = Callable[[Any, Any], Any]
Case = tuple[str, Draw, Apart, Terms]


def classes(wrong: float, *, greedy: bool = False) -> Draw:
    """Labels; the challenger says another one so often, or always the likeliest. Close calls come in runs."""

    def draw(rng: np.random.Generator, rows: int) -> Answers:
        odds = np.where(np.repeat(rng.random(rows // 20) < 0.05, 20), rng.random(rows) * 0.8, 0.0)
        a, again, b, other = (rng.random(rows) < odds for _ in range(4))
        if greedy:
            b = other = odds > 0.5
        far = rng.random(rows) < wrong
        return a, again, b ^ far, other ^ far

    return draw


def scores(shift: float, sigma: float = 0.35, other: float | None = None) -> Draw:
    """Scores with normal noise; the challenger's are moved, and may have noise of their own."""

    def draw(rng: np.random.Generator, rows: int) -> Answers:
        own = rng.normal(0, sigma, (2, rows))
        return (*own, *rng.normal(shift, sigma if other is None else other, (2, rows)))

    return draw


def words(swapped: float) -> Draw:
    """Texts; the challenger draws so many of the words the other way round."""

    def draw(rng: np.random.Generator, rows: int) -> Answers:
        odds = rng.random((rows, 10)) * 0.4
        changed = np.where(rng.random((rows, 10)) < swapped, 1 - odds, odds)
        a, again, b, other = (rng.random((rows, 10)) < each for each in (odds, odds, changed, changed))
        return a, again, b, other

    return draw


def far(a: Any, b: Any) -> Any:
    """Scores beyond the tolerance."""
    return abs(a - b) > 1.0


def little_in_common(a: Any, b: Any) -> Any:
    """Texts of too few common words."""
    return (a == b).mean(axis=1) < 0.6


LABEL, SCORE = terms_of("label"), terms_of("score")
EQUAL: tuple[Case, ...] = (
    ("labels", classes(0.0), np.not_equal, LABEL),
    ("scores", scores(0.0), far, SCORE),
    ("noisy_scores", scores(0.0, 1.0), far, SCORE),
    ("texts", words(0.0), little_in_common, SCORE),
)
DIFFERENT: tuple[Case, ...] = (
    ("labels_1", classes(0.01), np.not_equal, LABEL),
    ("labels_5", classes(0.05), np.not_equal, LABEL),
    ("greedier", classes(0.01, greedy=True), np.not_equal, LABEL),
    ("scores", scores(0.9194), far, SCORE),
    ("scores_noisy", scores(0.5, 1.0), far, SCORE),
    ("steadier_scores", scores(0.9194, other=0.05), far, SCORE),
    ("noisier_scores", scores(0.5, other=0.8), far, SCORE),
    ("texts", words(0.3), little_in_common, SCORE),
)


def tallies(
    draw: Draw, apart: Apart, seed: int, *, rows: int = 8000, share: float = 0.3, looks: int = LOOKS
) -> Iterator[Tally]:
    """What is known at every look, of records of which a share is asked about again."""
    rng = np.random.default_rng([seed, 7])
    a, again, b, other = draw(np.random.default_rng(seed), rows)
    weight, asked = rng.choice([1.0, 4.0], size=rows), rng.random(rows) < share
    differs, own, others = apart(a, b), apart(a, again), apart(b, other)
    beyond = excess([differs, apart(a, other), apart(again, b), apart(again, other)], own, others)
    seen = Tally()
    for part in np.array_split(np.arange(rows), looks):
        drawn = part[asked[part]]
        seen += Tally(
            RateSequence.of(differs[part], weight[part]),
            RateSequence.of(own[drawn], weight[drawn]),
            RateSequence.of(others[drawn], weight[drawn]),
            DifferenceSequence.of(beyond[drawn], weight[drawn]),
        )
        yield seen


def agreements(case: Case, seed: int, rows: int, share: float, looks: int = LOOKS) -> Iterator[Agreement]:
    """Agreement at every look."""
    _, draw, apart, terms = case
    for tally in tallies(draw, apart, seed, rows=rows, share=share, looks=looks):
        yield tally.agreement(margin=MARGIN, terms=terms)


def agreement_of(draw: Draw, apart: Apart) -> float:
    """1 - (P(A ≠ B) - noise) / (1 - noise), the noise of both in the mean, of 400,000 records."""
    a, again, b, other = draw(np.random.default_rng(99), 400_000)
    noise = (apart(a, again).mean() + apart(b, other).mean()) / 2
    return 1.0 - float((apart(a, b).mean() - noise) / (1.0 - noise))


def odd_ones(case: Case, rows: int = 400_000) -> float:
    """What the odd one of three answers tells instead."""
    _, draw, apart, _ = case
    a, again, b, _ = draw(np.random.default_rng(0), rows)
    differs, own, other = apart(a, b), apart(a, again), apart(again, b)
    return 1.0 - float((differs & other & ~own).mean() - (differs & own & ~other).mean())


def equal() -> None:
    """Equal challengers that are called different at any look."""
    for case in EQUAL:
        wrong = sum(
            any(each.is_proven for each in agreements(case, seed, 4000, 0.3)) for seed in range(EQUAL_RUNS)
        )
        low, high = wilson_interval(wrong, EQUAL_RUNS)
        Figure(
            f"statistics.agreement.equal.{case[0]}", float(wrong), "runs called different", "none", 0.0,
            n=EQUAL_RUNS, low=low, high=high, data="4,000 records, 30 % asked twice, 8 looks, seeds 0-199",
        ).show()  # fmt: skip


def covered() -> None:
    """Runs whose interval holds the truth at every look."""
    for case in DIFFERENT:
        _, draw, apart, _ = case
        truth = agreement_of(draw, apart)
        right, value = 0, 0.0
        for seed in range(RUNS):
            seen = list(agreements(case, seed, 8000, SHARE, 4))
            right += all(each.beyond.low <= truth <= each.beyond.high for each in seen)
            value += seen[-1].beyond.value / RUNS
        low, high = wilson_interval(right, RUNS)
        name = f"statistics.agreement.{case[0]}"
        data = "8,000 records, 10 % asked twice, 4 looks, seeds 0-99"
        covers = right / RUNS
        Figure(
            f"{name}.covers", covers, "share of runs", "0.95", covers / 0.95, 1.0, RUNS, low, high, data
        ).show()
        Figure(f"{name}.agreement", value, "share", f"truth {truth:.4f}", value / truth, data=data).show()
        told = odd_ones(case)
        Figure(
            f"{name}.odd_of_three", told, "share", f"truth {truth:.4f}", told / truth, data="400,000 records"
        ).show()


def power() -> None:
    """How often a difference in labels is proven, by records and by the share that is asked twice."""
    lines = [
        "| asked twice | challenger says another class on | 8,000 records | 32,000 | 128,000 |",
        "|---|---|---|---|---|",
    ]
    for share in (0.05, SHARE, 0.3, 1.0):
        for wrong in (0.0, 0.005, 0.01, 0.02, 0.05):
            cells = []
            for rows in (8000, 32_000, 128_000):
                case: Case = ("labels", classes(wrong), np.not_equal, LABEL)
                found = [next(agreements(case, seed, rows, share, 1)) for seed in range(POWER_RUNS)]
                known = sum(each.is_proven for each in found) / POWER_RUNS
                same = sum(each.verdict == "same" for each in found) / POWER_RUNS
                cells.append(f"{same:.0%} same, {known:.0%} different" if not wrong else f"{known:.0%}")
            told = f"{wrong:.1%}".replace(".0%", "%").replace("%", " %")
            lines.append(f"| {share:.0%} | {told} | " + " | ".join(cells) + " |")
    show_table("power", "\n".join(lines).replace("%", "%"))


if __name__ == "__main__":
    equal()
    covered()
    power()
