"""Rounds of labelling: the loop and the report that the labels-saved benchmarks share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.assertions.selection import Policy, SelectionState, select

ROUNDS, BUDGET = 5, 100
Floats = NDArray[np.floating]
Ints = NDArray[np.integer]
Model = TypeVar("Model")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the model of one round says about the pool."""

    severities: Floats
    wrong: NDArray[np.bool_]
    uncertainty: Floats
    embeddings: Floats
    probabilities: Floats


@dataclass(frozen=True, slots=True)
class Arm:
    """One line of the table.

    Attributes
    ----------
    permuted
        The control: severities are dealt to records anew, the same way in every round.
    audit_share
        0.0 for the methods as they were published; ours pays for its audit.
    """

    name: str
    policy: Policy
    permuted: bool = False
    audit_share: float = 0.0

    @classmethod
    def pair(cls, policy: Policy, audit_share: float = 0.0) -> tuple["Arm", "Arm"]:
        """A policy and its control."""
        return cls(policy, policy, False, audit_share), cls(f"{policy}, permuted", policy, True, audit_share)


class Task(Protocol[Model]):
    """A pool, a test set and a model that is refitted from scratch."""

    @property
    def groups(self) -> NDArray[np.object_] | None:
        """Near-duplicates in the pool."""

    @property
    def pool_rows(self) -> int:
        """Records in the pool."""

    def fit(self, chosen: Sequence[int]) -> Model:
        """Model of the first labels and the chosen ones of the pool."""

    def look(self, model: Model) -> Seen:
        """What it and the assertions say about the pool."""

    def scores(self, model: Model) -> Sequence[float]:
        """Figures on the test set, the first is the one that counts."""


def run(task: Task[Model], arm: Arm, seed: int) -> NDArray[np.float64]:
    """Scores after 0, 1 … rounds, shape (rounds + 1, figures)."""
    deal = np.random.default_rng([seed, 1]).permutation(task.pool_rows)
    state, chosen = SelectionState(), np.array([], dtype=np.intp)
    labelled = np.zeros(task.pool_rows, dtype=np.bool_)
    model = task.fit([])
    found = [task.scores(model)]
    for _ in range(ROUNDS):
        seen = task.look(model)
        severities = seen.severities[deal] if arm.permuted else seen.severities
        state = state.observe(severities)
        picks = select(
            severities,
            budget=BUDGET,
            policy=arm.policy,
            seed=seed,
            state=state,
            labelled=labelled,
            groups=task.groups,
            uncertainty=seen.uncertainty,
            embeddings=seen.embeddings,
            probabilities=seen.probabilities,
            audit_share=arm.audit_share,
        ).rows
        state = state.bought(severities[picks], seen.wrong[picks])
        labelled[picks] = True
        chosen = np.concatenate([chosen, picks])
        model = task.fit(chosen.tolist())
        found.append(task.scores(model))
    return np.array(found)


def compare(
    make: Callable[[int], Task[Model]], arms: Sequence[Arm], seeds: Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    """Scores per arm, shape (seeds, rounds + 1, figures); all arms see the same worlds."""
    found: dict[str, list[NDArray[np.float64]]] = {arm.name: [] for arm in arms}
    for seed in seeds:
        task = make(seed)
        for arm in arms:
            found[arm.name].append(run(task, arm, seed))
    return {name: np.array(runs) for name, runs in found.items()}


def labels_to(curve: Floats, goal: float) -> float:
    """Labels at which a curve reaches a goal, interpolated between rounds; inf when it does not."""
    reached = np.flatnonzero(curve >= goal)
    if not len(reached):
        return float("inf")
    after = int(reached[0])
    if after == 0:
        return 0.0
    before, now = curve[after - 1], curve[after]
    return BUDGET * (after - 1 + float((goal - before) / (now - before)))


def bootstrap(
    runs: Mapping[str, NDArray[np.float64]],
    statistic: Callable[[Mapping[str, Floats]], float],
    *,
    draws: int = 2000,
) -> tuple[float, float]:
    """95 % interval of a statistic of mean curves over seeds, drawn in pairs."""
    seeds = len(next(iter(runs.values())))
    rng = np.random.default_rng(0)
    values = []
    for _ in range(draws):
        rows = rng.integers(0, seeds, seeds)
        values.append(statistic({name: found[rows].mean(axis=0) for name, found in runs.items()}))
    low, high = np.quantile(np.nan_to_num(values, posinf=1e9), [0.025, 0.975], method="nearest")
    return float(low), float(high)


def promise(
    name: str,
    runs: Mapping[str, NDArray[np.float64]],
    statistic: Callable[[Mapping[str, Floats]], float],
    unit: str,
    target: float | None,
    *,
    data: str,
) -> Figure:
    """A statistic of the mean curves with its bootstrap interval; it should reach ``target``."""
    seeds = len(next(iter(runs.values())))
    value = statistic({arm: found.mean(axis=0) for arm, found in runs.items()})
    low, high = bootstrap(runs, statistic)
    return Figure(name, value, unit, "1", value, target, n=seeds, low=low, high=high, data=data)


def table(runs: Mapping[str, NDArray[np.float64]], names: Sequence[str]) -> str:
    """Per arm and figure: its end with its standard error, and labels to what random reaches with all."""
    heads = [
        cell
        for name in names
        for cell in (f"{name} at {ROUNDS * BUDGET} labels", f"labels to random's {name}")
    ]
    seeds = len(next(iter(runs.values())))
    lines = [f"| {seeds} seeds | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for arm, found in runs.items():
        cells = []
        for figure in range(len(names)):
            ends = found[:, -1, figure]
            error = ends.std(ddof=1) / np.sqrt(len(ends)) if len(ends) > 1 else 0.0
            cells.append(f"{ends.mean():.3f} ± {error:.4f}")

            def needed(curves: Mapping[str, Floats], arm: str = arm, figure: int = figure) -> float:
                return labels_to(curves[arm][:, figure], curves["random"][-1, figure])

            value = needed({key: each.mean(axis=0) for key, each in runs.items()})
            low, high = bootstrap(runs, needed)
            interval = "" if arm == "random" else f" ({_labels(low)} to {_labels(high)})"
            cells.append(f"{_labels(value)}{interval}")
        policy, _, control = arm.partition(", ")
        shown = f"… severities {control}" if control else f"`{policy}`"
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _labels(number: float) -> str:
    return f"{number:.0f}" if number < 1e8 else "∞"
