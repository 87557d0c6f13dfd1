"""Errors of the gate's verdicts on labelled rows, from simulated histories.

``python -m benchmarks.improvement.gate_error [HISTORIES]``. Rows of an entity correlate: which of both errs
is drawn for each entity, with an intra-class correlation (Dirichlet), or losses share a factor (gamma). A
candidate worse by exactly what the margin allows must seldom pass, whatever entities and correlation; the
figure is the worst case's share. A better one must pass with the rows that the gate asked for.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.figure import Figure
from outrider.assertions.loss_bounds import Excess, excess, relative_excess
from outrider.dataops.improvement.gate import PairedEvidence, error_of, judge_fresh, judge_held_out, told

HISTORIES = 1000
MARGIN = 0.02
SHARE = 0.1
"""Margin of unbounded losses, as a share of the champion's."""
SIZES = ((5, 500), (10, 500), (50, 1000))
CORRELATIONS = (0.0, 0.1, 0.5)
TRIES = 100
CLIMBS = 100

Floats: TypeAlias = NDArray[np.float64]
Losses: TypeAlias = tuple[Floats, Floats, NDArray[np.intp]]
"""Losses of champion and candidate, and the entity of each row."""


def errors(rng: np.random.Generator, entities: int, rows: int, lost: float, won: float, icc: float) -> Losses:
    """Right or wrong: the candidate alone errs on a share ``lost`` of the rows, the champion on ``won``."""
    shares = np.broadcast_to([lost, won, 1.0 - lost - won], (entities, 3))
    if icc:
        shares = rng.dirichlet(np.maximum(shares[0] * (1.0 / icc - 1.0), 1e-9), size=entities)
    entity = np.arange(rows) % entities
    drawn, ends = rng.random(rows), shares.cumsum(axis=1)[entity]
    alone = drawn < ends[:, 0]
    other = ~alone & (drawn < ends[:, 1])
    return other.astype(np.float64), alone.astype(np.float64), entity


def distances(
    rng: np.random.Generator, entities: int, rows: int, share: float, icc: float, power: int
) -> Losses:
    """Absolute or squared distances to a number, the candidate's larger by a share."""
    entity = np.arange(rows) % entities
    factor = np.ones(entities)
    if icc:  # so that the factors' variance is that part of all
        variance = icc / (1.0 - icc) * 0.57
        factor = rng.gamma(1.0 / variance, variance, size=entities)
    shared = rng.normal(size=rows)
    old, new = (np.abs(0.7 * shared + 0.7 * rng.normal(size=rows)) ** power for _ in range(2))
    return old, new * (1.0 + share) * factor[entity], entity


def rate(histories: int, drawn: Callable[[], Losses], *, relative: bool = False) -> float:
    """Share of histories that pass."""
    return sum(held_out(drawn(), relative=relative)[0] for _ in range(histories)) / histories


def share_of(histories: int, happens: Callable[[], bool]) -> float:
    """Share of histories in which something happens."""
    return sum(happens() for _ in range(histories)) / histories


def held_out(losses: Losses, *, tries: int = 1, relative: bool = False) -> tuple[bool, int]:
    """Whether the gate passes a candidate, and the rows it lacks."""
    old, new, entity = losses
    bound: Callable[..., Excess] = relative_excess if relative else excess
    found = bound(old, new, entities=entity, error=error_of(tries))
    pair = PairedEvidence("held", "loss", 0.0, found, is_relative=relative, tries=tries)
    check = judge_held_out(pair, SHARE if relative else MARGIN)
    return check.passed, check.rows_missing


def worst_errors(rng: np.random.Generator, histories: int) -> Iterator[tuple[str, float]]:
    """Largest share of wrong passes, by kind of loss."""
    shares = ((MARGIN, 0.0), (0.06, 0.04), (0.2, 0.18))
    found = []
    for (entities, rows), icc, (lost, won) in product(SIZES, CORRELATIONS, shares):
        drawn = partial(errors, rng, entities, rows, lost, won, icc)
        found.append(rate(histories, drawn))
    yield "error", max(found)
    for name, power in (("absolute", 1), ("squared", 2)):
        found = []
        for (entities, rows), icc in product(SIZES, CORRELATIONS):
            drawn = partial(distances, rng, entities, rows, SHARE, icc, power)
            found.append(rate(histories // 4, drawn, relative=True))
        yield name, max(found)


def tried(rng: np.random.Generator, histories: int) -> float:
    """Share of histories in which any of 100 candidates at the margin passes, on the same 2,000 rows."""

    def passes() -> bool:
        champion = rng.random(2000) < 0.05
        for number in range(1, TRIES + 1):
            mended, broken = champion & (rng.random(2000) < 0.4), ~champion & (rng.random(2000) < 0.0421)
            candidate = (champion & ~mended) | broken
            losses = champion.astype(float), candidate.astype(float), np.arange(2000)
            if held_out(losses, tries=number)[0]:
                return True
        return False

    return share_of(histories, passes)


def climbed(rng: np.random.Generator, histories: int) -> float:
    """Share of hill-climbers that pass with a candidate worse than allowed on all rows but the judging ones.

    Each starts at the margin's double, changes its answers to a random tenth of the rows in each try, without
    any worth beyond these rows, and keeps a change that the shown excess likes better.
    """

    def passes() -> bool:
        champion = rng.random(2000) < 0.05
        best = champion ^ (rng.random(2000) < 2 * MARGIN)  # worse by nearly twice what is allowed
        shown = np.inf
        for number in range(1, CLIMBS + 1):
            changed = rng.random(2000) < 0.1
            candidate = np.where(changed, champion ^ (rng.random(2000) < 2 * MARGIN), best)
            found = excess(champion.astype(float), candidate.astype(float), error=error_of(number))
            pair = PairedEvidence("held", "loss", 0.0, found, tries=number)
            if judge_held_out(pair, MARGIN).passed:
                return True
            seen = told(pair, passed=False).excess.value
            if seen < shown:
                shown, best = seen, candidate
        return False

    return share_of(histories, passes)


def voted(rng: np.random.Generator, histories: int, rows: int) -> float:
    """Share of histories in which a vote passes, of 99 candidates that guess, by what was shown of each.

    The hardest rows: the champion is right on 54 % of them, so that a guess is worse by twice the margin.
    """

    def passes() -> bool:
        label = np.where(rng.random(rows) < 0.5 + 2 * MARGIN, 1, -1)
        champion = (label < 0).astype(np.float64)
        guesses, shown = rng.choice([-1, 1], size=(TRIES - 1, rows)), []
        for number, guess in enumerate(guesses, 1):
            found = excess(champion, (guess != label).astype(np.float64), error=error_of(number))
            pair = PairedEvidence("held", "loss", 0.0, found, tries=number)
            if judge_held_out(pair, MARGIN).passed:
                return True
            shown.append(told(pair, passed=False).excess.value)
        vote = np.sign((np.mean(shown) - np.array(shown)) @ guesses + 1e-9)
        return held_out((champion, (vote != label).astype(np.float64), np.arange(rows)), tries=TRIES)[0]

    return share_of(histories, passes)


def poisoned(rng: np.random.Generator, histories: int, entities: int, share: float) -> float:
    """Share of candidates that pass on rows of which an attacker's entities send a share.

    The attacker labels its rows so that the candidate, trained on such rows, is right on all of them and the
    champion on none; on everybody else's rows the candidate errs on one in a hundred more. Passing is being
    shown to be better on fresh rows, or no worse by one in a hundred on held-out ones.
    """

    def passes() -> bool:
        honest, rows = int(rng.choice((10, 50, 200))), int(rng.choice((500, 2000)))
        old, new, entity = errors(rng, honest, rows, 0.05, 0.04, 0.1)
        count = round(share * rows / (1.0 - share))
        old, new = np.append(old, np.ones(count)), np.append(new, np.zeros(count))
        entity = np.append(entity, honest + np.arange(count) % entities)
        found = excess(old, new, entities=entity, error=error_of(1))
        pair = PairedEvidence("held", "loss", 0.0, found)
        return judge_fresh(pair, 0.0).passed or judge_held_out(pair, 0.01).passed

    return share_of(histories, passes)


def asked(rng: np.random.Generator, histories: int, gain: float) -> tuple[float, float]:
    """Share of better candidates that pass with the rows asked for, and these rows in those of a fixed size.

    A first look at 300 rows of 150 entities; undecided ones come again with as many entities more.
    """
    passed, needed = 0, []
    lost, won = 0.04, 0.04 + gain
    for _ in range(histories):
        decided, missing = held_out(errors(rng, 150, 300, lost, won, 0.05))
        if not decided and missing:
            rows = 300 + missing
            needed.append(rows)
            decided, _ = held_out(errors(rng, rows // 2, rows // 2 * 2, lost, won, 0.05), tries=2)
        passed += int(decided)
    quantiles = float(ndtri(0.9) - ndtri(error_of(2)))
    fixed = (lost + won) * (quantiles / MARGIN) ** 2 * 1.05  # two rows of an entity correlate
    return passed / histories, float(np.median(needed) / fixed) if needed else 0.0


def refused(rng: np.random.Generator, histories: int) -> float:
    """Share of equal candidates that are refused, on held-out or on fresh rows."""

    def fails() -> bool:
        old, new, entity = errors(rng, 50, 1000, 0.05, 0.05, 0.1)
        found = excess(old, new, entities=entity, error=error_of(1))
        pair = PairedEvidence("held", "loss", 0.0, found)
        checks = judge_held_out(pair, MARGIN), judge_fresh(pair, 0.0)
        return any(check.outcome == "failed" for check in checks)

    return share_of(histories, fails)


def show(name: str, value: float, data: str, histories: int) -> None:
    """Share that may be one in twenty; none seen counts as one."""
    name = f"improvement.gate_error.{name}"
    Figure(
        name, value, "share", "0.05", 0.05 / max(value, 1.0 / histories), 1.0, n=histories, data=data
    ).show()


def main() -> None:
    """Print all figures."""
    histories = int(sys.argv[1]) if len(sys.argv) > 1 else HISTORIES
    few, half = histories // 5, histories // 2
    rng = np.random.default_rng(11)
    for loss, worst in worst_errors(rng, histories):
        show(
            f"passed_at_margin.{loss}",
            worst,
            "worst of all entities and correlations, at the margin",
            histories,
        )
    data = "100 candidates at the margin, on the same rows"
    show("passed_in_100_tries", tried(rng, histories), data, histories)
    show("passed_by_climbing", climbed(rng, few), "100 steps", few)
    for rows in (500, 2000):
        data = f"100th try, a vote of 99 by what was shown of them; {rows} rows"
        show(f"passed_by_vote_{rows}", voted(rng, few, rows), data, few)
    show("passed_by_poison", poisoned(rng, histories, 3, 0.05), "5 % of the rows of 3 entities", histories)
    share = poisoned(rng, histories, 3, 0.3)
    name, data = "improvement.gate_error.passed_by_much_poison", "30 % of the rows of 3 entities"
    Figure(name, share, "share", "1", share, n=histories, data=data).show()
    show("equal_refused", refused(rng, histories), "50 entities", histories)
    passed, _ = asked(rng, half, 2 * MARGIN)
    data = "better by twice the margin, with the rows asked for"
    name = "improvement.gate_error.better_passed"
    Figure(name, passed, "share", "0.9", passed / 0.9, 1.0, n=half, data=data).show()
    passed, times = asked(rng, half, 0.0)
    data = f"rows asked for, in those of the fixed-size test; {passed:.0%} of equal candidates pass with them"
    name = "improvement.gate_error.rows_asked"
    Figure(name, times, "x", "1.5 x", 1.5 / times, 1.0, n=half, data=data).show()


if __name__ == "__main__":
    main()
