"""Errors of the gate's verdicts on labelled rows, from simulated histories.

``python -m benchmarks.improvement.gate_error [HISTORIES]``. Rows of an entity correlate: which of both errs
is drawn for each entity, with an intra-class correlation (Dirichlet), or losses share a factor (gamma). A
candidate worse by exactly what the margin allows must seldom pass, whatever entities and correlation; the
figure is the worst case's share. A better one must pass with the rows that the gate asked for. Days, or hours
of one day, may differ, too: on each the rates of both are multiplied by factors of their own (log-normal).
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.figure import Figure
from outrider.assertions.statistics.loss_bounds import Excess, excess, relative_excess
from outrider.dataops.improvement.gate import PairedEvidence, error_of, judge_fresh, judge_held_out, told

HISTORIES = 1000
MARGIN = 0.02
SHARE = 0.1
"""Margin of unbounded losses, as a share of the champion's."""
SIZES = ((5, 500), (10, 500), (50, 1000))
CORRELATIONS = (0.0, 0.1, 0.5)
TRIES = 100
CLIMBS = 100
MANY = (20, 60, 200)
"""Rows an entity."""
STRETCHES = (8, 12, 30)
NOISY_ROWS = 4000

Floats: TypeAlias = NDArray[np.float64]
Losses: TypeAlias = tuple[Floats, Floats, NDArray[np.intp]]
"""Losses of champion and candidate, and the entity of each row."""
Times: TypeAlias = NDArray[np.datetime64]
START = np.datetime64("2026-01-05", "us")


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


def share_of(histories: int, happens: Callable[[], bool]) -> float:
    """Share of histories in which something happens."""
    return sum(happens() for _ in range(histories)) / histories


def held_out(
    losses: Losses,
    *,
    tries: int = 1,
    relative: bool = False,
    margin: float = MARGIN,
    times: Times | None = None,
) -> tuple[bool, int]:
    """Whether the gate passes a candidate, and the rows it lacks."""
    old, new, entity = losses
    bound: Callable[..., Excess] = relative_excess if relative else excess
    found = bound(old, new, entities=entity, times=times, error=error_of(tries))
    pair = PairedEvidence("held", "loss", 0.0, found, is_relative=relative, tries=tries)
    check = judge_held_out(pair, SHARE if relative else margin)
    return check.passed, check.rows_missing


def worst(histories: int, cells: Iterable[Callable[[], bool]]) -> float:
    """Largest share of histories that pass, of any cell.

    The three that look worst in a quarter of the histories are drawn again: the largest of many shares of few
    is too large.
    """
    seen = sorted(((share_of(histories // 4, cell), number, cell) for number, cell in enumerate(cells)))
    return max(share_of(histories, cell) for *_, cell in seen[-3:])


def worst_errors(rng: np.random.Generator, histories: int) -> Iterator[tuple[str, str, float]]:
    """Largest share of wrong passes, by kind of loss, and what of."""

    def cell(
        drawn: Callable[[], Losses], margin: float = MARGIN, *, relative: bool = False
    ) -> Callable[[], bool]:
        return lambda: held_out(drawn(), margin=margin, relative=relative)[0]

    shares = ((MARGIN, 0.0), (0.06, 0.04), (0.2, 0.18))
    data = "worst of all entities and correlations, at the margin"
    cells = [
        cell(partial(errors, rng, entities, rows, *both, icc))
        for (entities, rows), icc, both in product(SIZES, CORRELATIONS, shares)
    ]
    yield "error", data, worst(histories, cells)
    for name, power in (("absolute", 1), ("squared", 2)):
        cells = [
            cell(partial(distances, rng, entities, rows, SHARE, icc, power), relative=True)
            for (entities, rows), icc in product(SIZES, CORRELATIONS)
        ]
        yield name, data, worst(histories, cells)
    rare = ((0.01, 0.0, 0.01), (MARGIN, 0.0, MARGIN), (0.025, 0.005, MARGIN), (0.035, 0.015, MARGIN))
    cells = [
        cell(partial(errors, rng, entities, each * entities, lost, won, icc), margin)
        for each, entities, icc, (lost, won, margin) in product(MANY, (5, 12, 30, 100), CORRELATIONS, rare)
        if each * entities <= 6000
    ]
    data = f"worst of {', '.join(map(str, MANY))} rows an entity, of which 1 to 5 % differ"
    yield "many_rows", data, worst(histories, cells)


def in_time(
    rng: np.random.Generator,
    entities: int,
    rows: int,
    lost: float,
    won: float,
    scatter: float,
    times: Times,
) -> Losses:
    """Right or wrong, as :func:`errors` has it; the rates of each time differ by factors."""
    stretch = np.unique(times, return_inverse=True)[1]
    factors = np.exp(scatter * rng.normal(size=(2, int(stretch.max()) + 1)) - scatter**2 / 2)
    lose, win = (share * of[stretch] for share, of in zip((lost, won), factors, strict=True))
    drawn = rng.random(rows)
    alone = drawn < lose
    other = ~alone & (drawn < lose + win)
    return other.astype(np.float64), alone.astype(np.float64), np.arange(rows) % entities


def over_time(rng: np.random.Generator, histories: int, scatter: float, *, is_known: bool) -> float:
    """Largest share of wrong passes where days, or hours of one day, scatter."""
    sizes = ((600, 600), (2000, 2000), (50, 1000), (200, 4000))
    shares = ((MARGIN, 0.0), (0.035, 0.015), (0.2, 0.18))

    def cell(stretches: int, entities: int, rows: int, lost: float, won: float) -> Callable[[], bool]:
        step = np.timedelta64(1, "h" if stretches == 12 else "D")

        def passes() -> bool:
            times: Times = START + rng.integers(stretches, size=rows) * step
            losses = in_time(rng, entities, rows, lost, won, scatter, times)
            return held_out(losses, times=times if is_known else None)[0]

        return passes

    return worst(
        histories, [cell(number, *size, *both) for number, size, both in product(STRETCHES, sizes, shares)]
    )


def rows_to_pass(rng: np.random.Generator, histories: int, each: int, days: int) -> int:
    """Rows with which nine of ten equal candidates pass that differ on 2 % of rows, which err apart."""
    for entities in range(max(480 // each, 2), 60_000 // each, max(120 // each, 1)):
        rows = each * entities

        def passes(entities: int = entities, rows: int = rows) -> bool:
            times: Times = START + rng.integers(days, size=rows) * np.timedelta64(1, "D")
            losses = errors(rng, entities, rows, MARGIN / 2, MARGIN / 2, 0.0)
            return held_out(losses, times=times if days > 1 else None)[0]

        if share_of(histories, passes) >= 0.9:
            return rows
    return 60_000


def mislabelled(rng: np.random.Generator, histories: int, share: float) -> float:
    """Share of candidates worse by 2.5 points that pass on rows with wrong labels, of two classes."""

    def passes() -> bool:
        old, new, entity = errors(rng, NOISY_ROWS, NOISY_ROWS, 0.0325, 0.0075, 0.0)
        is_wrong = rng.random(NOISY_ROWS) < share
        return held_out((np.where(is_wrong, 1 - old, old), np.where(is_wrong, 1 - new, new), entity))[0]

    return share_of(histories, passes)


def undrawn(rng: np.random.Generator, histories: int, entities: int) -> float:
    """Share of candidates that pass which err on two fifths of one entity in twenty, drawn or not."""

    def passes() -> bool:
        rows = 60 * entities
        entity = np.arange(rows) % entities
        lost = 0.01 + np.where(rng.random(entities) < 0.05, 0.4, 0.0)[entity]
        drawn = rng.random(rows)
        alone, other = drawn < lost, (drawn >= lost) & (drawn < lost + 0.01)
        return held_out((other.astype(np.float64), alone.astype(np.float64), entity))[0]

    return share_of(histories, passes)


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
    for loss, data, share in worst_errors(rng, histories):
        show(f"passed_at_margin.{loss}", share, data, histories)
    quarter = histories // 4
    for scatter in (0.3, 0.6, 1.0):
        data = f"8, 30 days or 12 hours whose rates scatter by {scatter} (sd of the logarithm)"
        name, share = f"passed_at_margin.days_{scatter}", over_time(rng, half, scatter, is_known=True)
        if scatter < 1.0:
            show(name, share, data, half)
        else:  # days of which a few make the loss: they may not have come yet
            Figure(f"improvement.gate_error.{name}", share, "share", "1", share, n=half, data=data).show()
    share = over_time(rng, half, 0.6, is_known=False)
    name, data = "improvement.gate_error.passed_at_margin.days_untold", "the same at 0.6, times left out"
    Figure(name, share, "share", "1", share, n=half, data=data).show()
    known = MARGIN * (float(ndtri(0.9) - ndtri(error_of(1))) / MARGIN) ** 2
    for each, days in product((1, *MANY), (1, 10)):
        rows = rows_to_pass(rng, quarter, each, days)
        least = math.ceil(known / each) * each
        name = f"improvement.gate_error.rows_to_pass.{each}" + (".days" if days > 1 else "")
        data = (
            f"{each} rows an entity"
            + (f", {days} days" if days > 1 else "")
            + (f": equal candidates that differ on 2 % need {rows:,}; {least:,} where the scatter is known")
        )
        target = None if days > 1 else 1.0
        Figure(name, rows, "rows", "3 x", 3.0 * least / rows, target, n=quarter, data=data).show()
    for share in (0.0, 0.1, 0.2):
        data = f"2.5 points worse, {NOISY_ROWS:,} rows of which {share:.0%} have the other label"
        passed = mislabelled(rng, histories, share)
        name = f"improvement.gate_error.passed_mislabelled.{share:.1f}"
        Figure(name, passed, "share", "1", passed, n=histories, data=data).show()
    for entities in (30, 100, 200):
        passed = undrawn(rng, quarter, entities)
        name, data = (
            f"improvement.gate_error.passed_undrawn.{entities}",
            "errs on 40 % of one entity in twenty",
        )
        Figure(name, passed, "share", "1", passed, n=quarter, data=data).show()
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
