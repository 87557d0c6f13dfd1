"""Labels saved on digits with device faults: selection policies over paired seeds, each beside its control.

``python -m benchmarks.assertions.labels_saved --seeds 24``; protocol and results stand in docs/selection.md.
Published methods spend the whole budget by their rule, ``adaptive`` pays for its audit sample of 10 %. Every
policy takes at most one frame of a track.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure, show_table

from ._digits_devices import INVERTED, MIRRORED, POOL_SHARES, STUCK, World, make
from ._mlp import Mlp, fit
from ._rounds import Arm, Seen, compare, labels_to, promise, table

FIRST_SEED = 1000
ARMS = (
    Arm("random", "random"),
    Arm("uncertainty", "uncertainty"),
    *Arm.pair("uniform"),
    *Arm.pair("bal"),
    Arm("badge", "badge"),
    *Arm.pair("adaptive", audit_share=0.1),
)
Floats = NDArray[np.floating]


class DigitsTask:
    """One world, its six assertions and its model."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._world: World = make(seed)
        pool = self._world.pool
        self.pool_rows = len(pool.y)
        self.groups = pool.track.astype(object)
        images = pool.x.reshape(-1, 8, 8)
        self._mirrored = np.ascontiguousarray(images[:, :, ::-1]).reshape(-1, 64)
        self._inputs_only = input_severities(images, self._world.x.reshape(-1, 8, 8))

    def fit(self, chosen: Sequence[int]) -> Mlp:
        """The first labels and the chosen ones."""
        world, rows = self._world, np.array(chosen, dtype=np.intp)
        x, y = np.concatenate([world.x, world.pool.x[rows]]), np.concatenate([world.y, world.pool.y[rows]])
        return fit(x, y, classes=10, seed=self._seed)

    def look(self, model: Mlp) -> Seen:
        """Six severities and what policies may know of the model."""
        pool = self._world.pool
        probabilities = model.probabilities(pool.x)
        answer, top = probabilities.argmax(axis=1), probabilities.max(axis=1)
        votes = np.zeros((pool.track.max() + 1, 10))
        np.add.at(votes, (pool.track, answer), 1.0)
        disagree = (1.0 - votes.max(axis=1) / votes.sum(axis=1))[pool.track]
        surer = model.probabilities(self._mirrored).max(axis=1) - top
        severities = np.column_stack(
            [disagree, np.where(surer > 0.2, surer, 0.0), *self._inputs_only, self._world.nuisance]
        )
        return Seen(severities, answer != pool.y, 1.0 - top, model.embed(pool.x), probabilities)

    def scores(self, model: Mlp) -> list[float]:
        """In-distribution accuracy, and that of the worst of devices 1 to 3."""
        test = self._world.test
        correct = model.probabilities(test.x).argmax(axis=1) == test.y
        per_device = [float(correct[test.device == device].mean()) for device in range(5)]
        return [
            float(np.dot(per_device, POOL_SHARES)),
            min(per_device[d] for d in (STUCK, MIRRORED, INVERTED)),
        ]


def input_severities(images: Floats, healthy: Floats) -> tuple[Floats, Floats, Floats]:
    """Ink outside the healthy range, a column stuck at bright, total variation above the healthy range."""
    ink, normal = images.mean(axis=(1, 2)), healthy.mean(axis=(1, 2))
    odd_ink = np.maximum(normal.min() - ink, ink - normal.max()) - 0.06
    stuck = images.mean(axis=1).max(axis=1) - 0.92
    rough = total_variation(images) - total_variation(healthy).max()
    return np.maximum(odd_ink, 0.0), np.maximum(stuck, 0.0), np.maximum(rough, 0.0)


def total_variation(images: Floats) -> Floats:
    """Sum of absolute differences between neighbours, shape (images,)."""
    down, across = np.abs(np.diff(images, axis=1)), np.abs(np.diff(images, axis=2))
    return np.asarray(down.sum(axis=(1, 2)) + across.sum(axis=(1, 2)))


def distance(policy: str) -> Callable[[Mapping[str, Floats]], float]:
    """Minus how far the control of a policy ends from random, in accuracy."""
    return lambda curves: -abs(float(curves[f"{policy}, permuted"][-1, 0] - curves["random"][-1, 0]))


def figures(runs: Mapping[str, NDArray[np.float64]], data: str) -> list[Figure]:
    """What is promised, each with its interval over seeds."""

    def share(policy: str, figure: int, curves: Mapping[str, Floats]) -> float:
        goal = curves["random"][-1, figure]
        return labels_to(curves[policy][:, figure], goal) / 500

    def gain(policy: str, against: str, curves: Mapping[str, Floats]) -> float:
        return float(curves[policy][-1, 0] - curves[against][-1, 0])

    def figure(
        name: str, statistic: Callable[[Mapping[str, Floats]], float], unit: str, target: float | None
    ) -> Figure:
        return promise(f"assertions.labels_saved.{name}", runs, statistic, unit, target, data=data)

    saved, near = "share of labels, against random", "accuracy: minus its distance from random"
    return [
        figure("bal.saved", lambda c: 1 - share("bal", 0, c), saved, 0.30),
        figure("bal.over_uniform", lambda c: gain("bal", "uniform", c), "accuracy", 0.005),
        figure("adaptive.saved", lambda c: 1 - share("adaptive", 0, c), saved, None),
        figure("adaptive.over_badge", lambda c: gain("adaptive", "badge", c), "accuracy", -0.005),
        figure("adaptive.worst_device.saved", lambda c: 1 - share("adaptive", 1, c), saved, 0.74),
        figure("bal.control", distance("bal"), near, -0.015),
        figure("uniform.control", distance("uniform"), near, -0.015),
    ]


def main() -> None:
    """Run, print the table and the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    options, _ = parser.parse_known_args()
    seeds = range(options.first, options.first + options.seeds)
    runs = compare(DigitsTask, ARMS, seeds)
    data = f"scikit-learn's digits through five devices, seeds {seeds[0]} to {seeds[-1]}"
    for found in figures(runs, data):
        found.show()
    show_table("policies", table(runs, ("accuracy", "worst device")))


if __name__ == "__main__":
    main()
