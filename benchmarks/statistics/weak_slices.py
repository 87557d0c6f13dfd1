"""Weak slices: how often one is proven of noise, and how often a planted one is found.

``python -m benchmarks.statistics.weak_slices [RUNS]``. Noise is of lone records, of entities with 15 records
that are right or wrong as a whole, of weights of 1 and 10, and of an outcome that 1 % of the records have.
Planted slices are two conditions on random columns of 8; one counts as found where the first proven slice
shares at least 60 % of its records (Jaccard) with it. The line of a decision tree, as error analysers draw
it (scikit-learn, depth 3, 1 % of the records in a leaf; its worst leaf), is searched on all records and
proves nothing.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import beta

from benchmarks.figure import Figure
from outrider.assertions.weak_slices import ERROR, find_weak_slices, holds

RUNS, PLANTED = 2_000, 200
ROWS, MANY = 1_500, 6_000
REST = 0.05
STEM = "statistics.weak_slices"
Bools = NDArray[np.bool_]


def columns(rng: np.random.Generator, rows: int) -> pa.Table:
    """Regions, ages, a truth value, devices and four columns of noise."""
    return pa.table(
        {
            "region": rng.choice(["north", "south", "east"], rows),
            "age": pa.array(rng.integers(18, 90, rows), pa.int64()),
            "member": rng.random(rows) < 0.5,
            "device": rng.choice([f"d{n}" for n in range(40)], rows),
            **{f"x{n}": rng.normal(size=rows) for n in range(4)},
        }
    )


def noise(kind: str, seed: int) -> dict[str, Any]:
    """What a search is given where no slice is worse than the rest."""
    rng = np.random.default_rng([seed, len(kind)])
    if kind == "entities":
        entity = np.repeat(np.arange(ROWS // 15), 15)
        table = columns(rng, ROWS // 15).take(pa.array(entity))
        return {"columns": table, "outcome": (rng.random(ROWS // 15) < 0.2)[entity], "entity": entity}
    given: dict[str, Any] = {"columns": columns(rng, ROWS)}
    if kind == "weighted":
        given["weight"] = np.where(rng.random(ROWS) < 0.9, 1.0, 10.0)
    return given | {"outcome": rng.random(ROWS) < (0.01 if kind == "rare" else 0.1)}


KINDS = ("alone", "entities", "weighted", "rare")


def false_proofs(kind: str, runs: int) -> int:
    """Searches of noise in which a slice is proven."""
    return sum(bool(find_weak_slices(**noise(kind, seed), seed=seed).proven) for seed in range(runs))


def planted(seed: int) -> tuple[pa.Table, Bools]:
    """Table, and the rows of a slice of two random conditions, 3 to 20 % of all."""
    rng = np.random.default_rng([seed, 99])
    table = columns(rng, MANY)
    age, x = table["age"].to_numpy(), table["x0"].to_numpy()
    region = table["region"].to_numpy(zero_copy_only=False)
    kinds: list[Callable[[], Bools]] = [
        lambda: np.asarray(region == rng.choice(["north", "south", "east"])),
        lambda: np.asarray(age > rng.integers(50, 75)),
        lambda: np.asarray(x < rng.uniform(-1.0, 0.0)),
        lambda: table["member"].to_numpy(zero_copy_only=False).astype(np.bool_),
    ]
    while True:
        one, other = rng.choice(len(kinds), 2, replace=False)
        rows: Bools = np.logical_and(kinds[one](), kinds[other]())
        if 0.03 <= rows.mean() <= 0.2:
            return table, rows


def overlap(one: Bools, other: Bools) -> float:
    """Jaccard index of two sets of rows."""
    return float((one & other).sum() / max(1, (one | other).sum()))


def found_here(table: pa.Table, wrong: Bools, seed: int) -> Bools:
    """Rows of the surest proven slice; none without one."""
    proven = find_weak_slices(table, wrong, seed=seed).proven
    if not proven:
        return np.zeros(len(wrong), np.bool_)
    return np.asarray(np.logical_and.reduce([holds(condition, table) for condition in proven[0].conditions]))


def found_by_tree(table: pa.Table, wrong: Bools) -> Bools:
    """Rows of the worst leaf of a tree."""
    from sklearn.tree import DecisionTreeClassifier

    x = pd.get_dummies(table.to_pandas()).to_numpy(np.float64)
    tree = DecisionTreeClassifier(max_depth=3, min_samples_leaf=0.01, random_state=0).fit(x, wrong)
    leaf, share = tree.apply(x), tree.predict_proba(x)[:, 1]
    return np.asarray(leaf == leaf[np.argmax(share)])


def main() -> None:
    """Print all figures."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    for kind in KINDS:
        false = false_proofs(kind, runs)
        low = float(beta.ppf(0.025, false, runs - false + 1)) if false else 0.0
        high = float(beta.ppf(0.975, false + 1, runs - false))
        Figure(
            f"{STEM}.false.{kind}", false / runs, "of searches", f"at most {ERROR}",
            float(false / runs <= ERROR), 1.0, n=runs, low=low, high=high, data="noise, 1,500 records",
        ).show()  # fmt: skip
    for rate in (0.15, 0.25):
        here = tree = 0
        for seed in range(PLANTED):
            table, rows = planted(seed)
            wrong = np.random.default_rng([seed, 7]).random(MANY) < np.where(rows, rate, REST)
            here += overlap(found_here(table, wrong, seed), rows) >= 0.6
            tree += overlap(found_by_tree(table, wrong), rows) >= 0.6
        Figure(
            f"{STEM}.found.{int(100 * rate)}", here / PLANTED, "of planted slices",
            f"worst leaf of a tree: {tree / PLANTED:.3g}", here / max(1, tree), None, n=PLANTED,
            data=f"6,000 records, wrong in {rate:.0%} of the slice and in {REST:.0%} elsewhere",
        ).show()  # fmt: skip


if __name__ == "__main__":
    main()
