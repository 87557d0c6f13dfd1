"""Alarms of performance: false ones while nothing changes, and the delay of a loss of five points.

False alarms are simulated on the service's decision, looked at after every block of labels; the promise is an
upper 95 % bound of models with any alarm in a horizon of 1.2 % where alpha is 1 %. Delays are of a real model
on elec2, a model of its last rows promoted at each of 24 places, whose answers are flipped from some row on.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.assertions.statistics.bets import weight_classes, weights_of
from outrider.behavioral_tests.statistics import wilson_interval
from outrider.dataops.alarms.loss_alarms import LossHistory, loss_alarms
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.alarms.version_losses import BlockLosses

Floats = NDArray[np.float64]
Numbers = NDArray[Any]
Integers = NDArray[np.int64]
RULE = AlarmRule()
MODELS, BLOCKS, BLOCK, SLICES = 1_000, 200, 50, 10
LOSSES = (0.01, 0.05, 0.2, 0.5)
PLACES, PLANTED, TRAINED, BEFORE, LONGEST, WITHIN = 24, 3, 10_000, 4_000, 4_000, 2_000
POINTS = 0.05
HALF_HOUR_US = 1_800_000_000


def losses_of(lost: Numbers, seen: Numbers, weight: Floats, begun_us: Integers) -> BlockLosses:
    """Losses of a version from counts of shape (slices, blocks, weights)."""
    number = np.arange(lost.shape[1])
    parts = tuple(f"slice {at}" for at in range(len(lost)))
    return BlockLosses(
        "1", number, begun_us, begun_us + 1, begun_us, begun_us, parts, lost * 1.0, seen * 1.0, weight, None
    )


def even_times(blocks: int) -> Integers:
    """Begins of blocks that divide a horizon evenly, in µs."""
    return np.asarray(np.arange(blocks) * int(RULE.horizon_s * 1e6) // blocks, dtype=np.int64)


def first_alarm(losses: BlockLosses, begin: int = 3) -> int | None:
    """Blocks seen when the decision, asked after every one, first alarms."""
    for blocks in range(begin, len(losses.number) + 1):
        seen = losses.where(losses.number < blocks)
        if loss_alarms(LossHistory(seen), RULE, standing=set()):
            return blocks
    return None


def slice_losses(rng: np.random.Generator) -> Floats:
    """Losses of slices around one of four usual ones, in no two models alike."""
    usual = float(rng.choice(LOSSES))
    odds = usual / (1.0 - usual) * rng.uniform(0.5, 2.0, SLICES)
    return np.asarray(odds / (1.0 + odds))


def steady(rng: np.random.Generator) -> BlockLosses:
    """Labels in an even stream."""
    seen = rng.multinomial(BLOCK, rng.dirichlet(np.full(SLICES, 2.0)), BLOCKS).T
    lost = rng.binomial(seen, slice_losses(rng)[:, None])
    return losses_of(lost[..., None], seen[..., None], np.ones(1), even_times(BLOCKS))


def bursts(rng: np.random.Generator) -> BlockLosses:
    """Labels of ever other slices in a burst of a minute each day."""
    days = np.repeat(np.arange(7), BLOCKS // 7 + 1)[:BLOCKS]
    mix = rng.dirichlet(np.full(SLICES, 1.0), 7)[days]
    seen = np.stack([rng.multinomial(BLOCK, own) for own in mix]).T
    lost = rng.binomial(seen, slice_losses(rng)[:, None])
    begun = days.astype(np.int64) * 86_400_000_000 + np.arange(BLOCKS) % 29 * 2_000_000
    return losses_of(lost[..., None], seen[..., None], np.ones(1), np.sort(begun))


def entities(rng: np.random.Generator) -> BlockLosses:
    """Thirty entities, each with a loss of its own, once in every block."""
    slices = rng.integers(0, SLICES, 30)
    usual = float(rng.choice(LOSSES))
    own = rng.beta(2.0 * usual, 2.0 * (1.0 - usual), 30)
    seen, lost = np.zeros((SLICES, BLOCKS)), np.zeros((SLICES, BLOCKS))
    for part, loss in zip(slices, own, strict=True):
        seen[part] += 1.0
        lost[part] += rng.random(BLOCKS) < loss
    return losses_of(lost[..., None], seen[..., None], np.ones(1), even_times(BLOCKS))


def delayed(rng: np.random.Generator) -> BlockLosses:
    """Labels of wrong answers that come sooner than those of right ones, from the first record on."""
    rows = BLOCKS * BLOCK
    loss, part = slice_losses(rng), rng.integers(0, SLICES, rows)
    is_lost = rng.random(rows) < loss[part]
    comes = np.arange(rows) + rng.exponential(np.where(is_lost, 0.5 * BLOCK, 2.0 * BLOCK))
    order = np.argsort(comes)
    block = np.arange(rows) // BLOCK
    seen, lost = np.zeros((SLICES, BLOCKS)), np.zeros((SLICES, BLOCKS))
    np.add.at(seen, (part[order], block), 1.0)
    np.add.at(lost, (part[order], block), is_lost[order])
    return losses_of(lost[..., None], seen[..., None], np.ones(1), even_times(BLOCKS))


def weighted(rng: np.random.Generator) -> BlockLosses:
    """Labels that a policy chooses, and from some block on another, which prefers records often lost."""
    share, hard, easy = rng.uniform(0.05, 0.3), rng.uniform(0.3, 0.8), rng.uniform(0.005, 0.2)
    chances = (np.array([0.2, 0.2]), np.array([rng.uniform(0.3, 0.9), rng.uniform(0.05, 0.2)]))
    changes = int(rng.integers(20, BLOCKS - 20))
    classes = np.unique(weight_classes(1.0 / np.concatenate(chances)))
    seen, lost = np.zeros((SLICES, BLOCKS, len(classes))), np.zeros((SLICES, BLOCKS, len(classes)))
    for begin, end, chance in ((0, changes, chances[0]), (changes, BLOCKS, chances[1])):
        rows = (end - begin) * BLOCK
        odds = np.array([share, 1.0 - share]) * chance
        kind = rng.choice(2, rows, p=odds / odds.sum())
        place = (rng.integers(0, SLICES, rows), begin + np.arange(rows) // BLOCK,
                 np.searchsorted(classes, weight_classes(1.0 / chance)[kind]))  # fmt: skip
        np.add.at(seen, place, 1.0)
        np.add.at(lost, place, rng.random(rows) < np.array([hard, easy])[kind])
    return losses_of(lost, seen, weights_of(classes), even_times(BLOCKS))


def false_alarms(models: int = MODELS) -> None:
    """Models with any alarm within a horizon, although nothing changes."""
    for draw in (steady, bursts, entities, delayed, weighted):
        show_false(draw, models)


def show_false(draw: Callable[[np.random.Generator], BlockLosses], models: int) -> None:
    """Print the share of models of one kind with any alarm."""
    rng = np.random.default_rng(47)
    alarms = sum(first_alarm(draw(rng)) is not None for _ in range(models))
    low, high = wilson_interval(alarms, models)
    Figure(
        f"monitoring.performance_alarms.{draw.__name__}", high, "upper bound of models with any alarm",
        "0.012", 0.012 / high, 1.0, models, low, high,
        data=f"{SLICES} slices, {BLOCKS} blocks of {BLOCK} labels, a look after each, losses of 1 to 50 %",
    ).show()  # fmt: skip


def elec2() -> tuple[Floats, Integers]:
    """Inputs, four earlier labels among them, and labels of the electricity market."""
    frame = pd.read_parquet(data_folder("elec2") / "elec2.parquet")
    names = ["period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
    labels = frame["class"].to_numpy(dtype=np.int64)
    earlier = [np.roll(labels, rows) for rows in (1, 2, 48, 336)]
    return np.column_stack([frame[names].to_numpy(), *earlier]), labels


def errors_at(place: int, table: tuple[Floats, Integers]) -> NDArray[np.bool_]:
    """Errors of a model of the rows before a place, on the next ones."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    inputs, labels = table
    model = HistGradientBoostingClassifier(early_stopping=False, max_iter=60, random_state=0)
    model.fit(inputs[place - TRAINED : place], labels[place - TRAINED : place])
    there = slice(place, place + BEFORE + LONGEST)
    return np.asarray(model.predict(inputs[there]) != labels[there])


def planted(rng: np.random.Generator, errors: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Errors with five points more behind ``BEFORE`` rows: right answers are flipped."""
    flipped = rng.random(len(errors)) < POINTS / (1.0 - float(errors[BEFORE:].mean()))
    flipped[:BEFORE] = False
    return errors | flipped


def alarm_row(lost: NDArray[np.bool_], begin: int) -> float:
    """Rows seen when the decision, asked after every block from a row on, alarms: a row each half hour."""
    blocks = len(lost) // BLOCK
    counts = lost[: blocks * BLOCK].reshape(1, blocks, BLOCK, 1).sum(axis=2) * 1.0
    begun = np.arange(blocks, dtype=np.int64) * BLOCK * HALF_HOUR_US
    found = first_alarm(losses_of(counts, np.full_like(counts, BLOCK), np.ones(1), begun), begin // BLOCK)
    return float("inf") if found is None else float(found * BLOCK)


def oracle_row(rng: np.random.Generator, lost: NDArray[np.bool_]) -> float:
    """Rows seen when a CUSUM alarms that knows both losses, with a chance of alpha in all rows."""
    usual = float(lost[:BEFORE].mean())
    gain = math.log1p(POINTS / usual), math.log1p(-POINTS / (1.0 - usual))
    height, top = np.zeros(1_000), np.zeros(1_000)
    for _ in lost:
        height = np.maximum(0.0, height + np.where(rng.random(1_000) < usual, *gain))
        top = np.maximum(top, height)
    walk = np.concatenate([[0.0], np.cumsum(np.where(lost, *gain))])
    heights = walk - np.minimum.accumulate(walk)
    over = np.flatnonzero(heights[BEFORE:] >= np.quantile(top, 1.0 - RULE.alpha))
    return float(BEFORE + over[0]) if len(over) else float("inf")


def delays() -> None:
    """Rows until a planted loss is found, and alarms that the market itself gives."""
    table, rng = elec2(), np.random.default_rng(48)
    rows, oracle, quiet, natural = [], [], [], 0
    places = np.linspace(TRAINED, len(table[1]) - BEFORE - LONGEST, PLACES).astype(int).tolist()
    for place in places:
        errors = errors_at(place, table)
        if alarm_row(errors[:BEFORE], 3 * BLOCK) < np.inf:
            natural += 1
        else:
            quiet.append(alarm_row(planted(rng, errors), BEFORE + BLOCK) - BEFORE)
        for _ in range(PLANTED):
            lost = planted(rng, rng.permutation(errors))
            rows.append(alarm_row(lost, BEFORE + BLOCK) - BEFORE)
            oracle.append(oracle_row(rng, lost) - BEFORE)
    show_delays(rows, oracle, quiet, natural)


def show_delays(rows: list[float], oracle: list[float], quiet: list[float], natural: int) -> None:
    """Print the figures of elec2."""
    name = "monitoring.performance_alarms"
    data = (
        f"elec2: boosting of {TRAINED:,} rows at {PLACES} places, 5 points planted behind {BEFORE:,} rows, "
        "a row each half hour, seed 48"
    )
    known = f"{data}; rows in random order, {PLANTED} times"
    Figure.of_share(
        f"{name}.found", sum(each <= WITHIN for each in rows), len(rows),
        f"found within {WITHIN:,} labelled rows", base=1.0, target=1.0, data=known,
    ).show()  # fmt: skip
    for part, share in (("median", 0.5), ("slow", 0.9)):
        own, best = (float(np.quantile(each, share, method="higher")) for each in (rows, oracle))
        words = f"labelled rows, {share:.0%} quantile"
        base = f"twice {best:,.0f} of an oracle CUSUM"
        Figure(f"{name}.{part}", own, words, base, 2.0 * best / own, 1.0, len(rows), data=known).show()
    Figure.of_share(
        f"{name}.in_order", sum(each <= WITHIN for each in quiet), len(quiet),
        f"found within {WITHIN:,} labelled rows", data=f"{data}; rows in order, quiet places",
    ).show()  # fmt: skip
    Figure.of_share(
        f"{name}.natural", natural, PLACES, "places that alarm before anything is planted",
        data=f"{data}; rows in order, whose loss moves by itself",
    ).show()  # fmt: skip


def employment() -> None:
    """Alarms about a model whose inputs move and whose loss stays.

    A year has no order: the file of 2018 has those who live in institutions behind each other.
    """
    folder = data_folder("acs_employment_ma")
    frame = pd.read_parquet(folder / "analysis.parquet")
    frame = frame.merge(pd.read_parquet(folder / "analysis_target.parquet"), on="id")
    frame = frame.sample(frac=1.0, random_state=49).sort_values("year", kind="stable")
    blocks = len(frame) // BLOCK
    wrong = (frame["prediction"] != frame["employed"]).to_numpy()[: blocks * BLOCK].reshape(blocks, BLOCK)
    sexes, part = np.unique(frame["SEX"].to_numpy()[: blocks * BLOCK], return_inverse=True)
    part = part.reshape(blocks, BLOCK)
    seen = np.stack([(part == at).sum(axis=1) for at in range(len(sexes))])[..., None] * 1.0
    lost = np.stack([(wrong & (part == at)).sum(axis=1) for at in range(len(sexes))])[..., None] * 1.0
    begun = np.arange(blocks, dtype=np.int64) * (3 * 365 * 86_400_000_000 // blocks)
    losses = losses_of(lost, seen, np.ones(1), begun)
    alarms = 0
    for until in range(10, blocks, 10):
        history = LossHistory(losses.where(losses.number < until))
        alarms = max(alarms, len(loss_alarms(history, RULE, standing=set())))
    Figure(
        "monitoring.performance_alarms.employment", alarms, "alarms", "none", 0.0,
        data=f"acs_employment_ma: {len(frame):,} labels of three years by sex, each in random order, "
        "a look each tenth block",
    ).show()  # fmt: skip


if __name__ == "__main__":
    delays()
    employment()
    false_alarms()
