"""Performance alarms of rare classes: labels of a class until its loss is found, and false alarms.

A model of a common class with a loss of 2 % and of a rare one of which it finds 80 %; from some label on it
finds less. The service's decision is asked after every label of the class. Steady models have five rare ones.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure, show_table
from outrider.dataops.alarms.loss_alarms import LossHistory, loss_alarms
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.alarms.version_losses import LABEL, BlockLosses

Floats = NDArray[np.float64]
RULE = AlarmRule()
BLOCK, BEFORE, MODELS, STEADY, STEADY_BLOCKS = 50, 60, 10, 30, 1_200
SHARES, RECALLS = (0.002, 0.01, 0.03), (0.0, 0.4)


def losses_of(lost: Floats, seen: Floats) -> BlockLosses:
    """Losses by labelled class, counts of shape (classes, blocks); three hundred blocks in a horizon."""
    number = np.arange(lost.shape[1])
    times = number * int(RULE.horizon_s * 1e6) // 300
    names = tuple(f"{LABEL}{at}" for at in range(len(lost)))
    by_label = BlockLosses(
        "1", number, times, times + 1, times, times, names, lost[..., None], seen[..., None], np.ones(1), None
    )
    lost, seen = (side.sum(axis=0)[None, :, None] for side in (lost, seen))
    return replace(by_label, parts=("",), lost=lost, seen=seen, by_label=by_label)


def drawn(rng: np.random.Generator, shares: Floats, wrong: Floats) -> BlockLosses:
    """Labels of classes by their shares, wrong by chances of shape (classes, blocks)."""
    seen = rng.multinomial(BLOCK, shares, wrong.shape[1]).T
    lost: Floats = np.asarray(rng.binomial(seen, wrong), dtype=np.float64)
    return losses_of(lost, np.asarray(seen, dtype=np.float64))


def labels_until(rng: np.random.Generator, share: float, recall: float) -> float:
    """Labels of the class since its recall fell, until an incident of the class; inf for none among sixty."""
    onset = round(BEFORE / share / BLOCK)
    wrong = np.repeat([[0.02], [0.2]], 2 * onset, axis=1)
    wrong[1, onset:] = 1.0 - recall
    found = drawn(rng, np.array([1.0 - share, share]), wrong)
    assert found.by_label is not None
    own = found.by_label.seen[1, :, 0]
    for block in np.flatnonzero(own[onset:]) + onset:
        if any(one.slice == f"{LABEL}1" for one in loss_alarms(
            LossHistory(found.where(found.number <= block)), RULE, standing=set()
        )):  # fmt: skip
            return float(own[onset : block + 1].sum())
    return float("inf")


def power() -> None:
    """Print the labels of the class that it takes."""
    rows = ["| share of labels | recall 80 % falls to | found | labels of the class, median | most |",
            "|---:|---:|---:|---:|---:|"]  # fmt: skip
    for share in SHARES:
        for recall in RECALLS:
            rng = np.random.default_rng(51)
            found = np.array([labels_until(rng, share, recall) for _ in range(MODELS)])
            hits = int(np.isfinite(found).sum())
            name = f"monitoring.rare_classes.{1000 * share:.0f}_to_{100 * recall:.0f}"
            data = f"class of {share:.1%}, recall 80 % to {recall:.0%} behind {BEFORE} of its labels, seed 51"
            target = 1.0 if recall == 0.0 else None
            Figure.of_share(
                f"{name}.found", hits, MODELS, "found in 60 labels of it", target=target, data=data
            ).show()
            median, most = float(np.median(found)), float(found.max())
            if np.isfinite(median):
                Figure(
                    f"{name}.labels", median, "labels of the class", "", 0.0, None, MODELS, data=data
                ).show()
            told = [f"{one:.0f}" if np.isfinite(one) else "over 60" for one in (median, most)]
            rows.append(f"| {share:.1%} | {recall:.0%} | {hits} of {MODELS} | {told[0]} | {told[1]} |")
    show_table("power", "\n".join(rows))


def steady() -> None:
    """Print the models with any alarm although nothing changes."""
    rng, alarms = np.random.default_rng(52), 0
    shares = np.array([0.93, 0.03, 0.02, 0.01, 0.006, 0.004])
    for _ in range(STEADY):
        usual = np.array([0.02, *rng.uniform(0.05, 0.6, 5)])
        found = drawn(rng, shares, np.repeat(usual[:, None], STEADY_BLOCKS, axis=1))
        alarms += any(
            loss_alarms(LossHistory(found.where(found.number <= block)), RULE, standing=set())
            for block in range(5, STEADY_BLOCKS, 5)
        )
    Figure(
        "monitoring.rare_classes.steady", alarms, "models with any alarm", f"none of {STEADY}",
        1.0 if alarms == 0 else 0.0, 1.0, STEADY,
        data=f"five rare classes, {STEADY_BLOCKS:,} blocks of {BLOCK} labels, a look at each fifth",
    ).show()  # fmt: skip


if __name__ == "__main__":
    power()
    steady()
