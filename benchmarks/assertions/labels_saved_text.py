"""Labels saved by BAL on two text classifiers, beside its control; see docs/selection.md.

``python -m benchmarks.assertions.labels_saved_text --seeds 12``. Nothing is claimed here against ``uniform``
or ``uncertainty``; ``--all`` shows them.
"""

import argparse
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import show_table

from ._rounds import Arm, compare, labels_to, promise, table
from ._text_tasks import Corpus, TextTask, intents, tweets

FIRST_SEED = 1000
ARMS = (Arm("random", "random"), *Arm.pair("bal"))
OTHERS = (
    Arm("uncertainty", "uncertainty"),
    Arm("uniform", "uniform"),
    Arm("badge", "badge"),
    Arm("adaptive", "adaptive", audit_share=0.1),
)
Curves = Mapping[str, NDArray[np.floating]]


def saved(curves: Curves) -> float:
    """Share of random's labels that BAL does without."""
    return 1 - labels_to(curves["bal"][:, 0], curves["random"][-1, 0]) / 500


def control(curves: Curves) -> float:
    """Minus the distance of the control from random, in accuracy."""
    return -abs(float(curves["bal, permuted"][-1, 0] - curves["random"][-1, 0]))


def measure(name: str, corpus: Corpus, seeds: range, arms: tuple[Arm, ...]) -> None:
    """Table and figures of one corpus."""
    runs = compare(lambda seed: TextTask(corpus, seed), arms, seeds)
    stem, data = f"assertions.labels_saved_text.{name}.bal", f"{name}, seeds {seeds[0]} to {seeds[-1]}"
    promise(f"{stem}.saved", runs, saved, "share of labels, against random", 0.40, data=data).show()
    near = "accuracy: minus its distance from random"
    promise(f"{stem}.control", runs, control, near, -0.015, data=data).show()
    show_table(name, table(runs, ("accuracy",)))


def main() -> None:
    """Both corpora."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("--all", action="store_true", help="the other policies too")
    options, _ = parser.parse_known_args()
    seeds = range(options.first, options.first + options.seeds)
    arms = (*ARMS, *OTHERS) if options.all else ARMS
    measure("airline_tweets", tweets(), seeds, arms)
    measure("clinc150", intents(), seeds, arms)


if __name__ == "__main__":
    main()
