"""Weak slices: how often one is proven of noise, and how often a planted one is found.

``python -m benchmarks.statistics.weak_slices [RUNS]``. Noise is of lone records, of entities with 15 records
that are right or wrong as a whole, of weights of 1 and 10, and of an outcome that 1 % of the records have.
Of days: their rates differ (by a log-normal factor), and a column is a coin toss for each day; the same with
entities that come on many days, and with a factor for each region and day.
Planted slices are two conditions on random columns of 8; one counts as found where the first proven slice
shares at least 60 % of its records (Jaccard) with it. The line of a decision tree, as error analysers draw
it (scikit-learn, depth 3, 1 % of the records in a leaf; its worst leaf), is searched on all records and
proves nothing.
"""

import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import beta

from benchmarks.figure import Figure
from outrider.assertions.statistics.weak_slices import ERROR, WeakSlice, find_weak_slices, holds

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
BY_DAY = ("days", "recurring", "regions")
SCATTER = 0.6


def days(kind: str, number: int, seed: int) -> dict[str, Any]:
    """What a search is given where days differ and no slice of them."""
    rng = np.random.default_rng([seed, number, len(kind)])
    table, day = columns(rng, ROWS), rng.integers(number, size=ROWS)
    given: dict[str, Any] = {"time": np.datetime64("2026-01-05", "us") + day * np.timedelta64(1, "D")}
    if kind == "regions":
        place = np.unique(table["region"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
        factor = np.exp(SCATTER * rng.normal(size=(number, 3)))[day, place]
    else:
        factor = np.exp(SCATTER * rng.normal(size=number))[day]
    if kind == "recurring":
        given["entity"] = rng.integers(ROWS // 15, size=ROWS)
        factor = factor * np.exp(0.5 * rng.normal(size=ROWS // 15))[given["entity"]]
    given["columns"] = table.append_column("coin", pa.array((rng.random(number) < 0.5)[day]))
    return given | {"outcome": rng.random(ROWS) < np.minimum(0.08 * factor, 1.0)}


def false_by_day(kind: str, number: int, runs: int, *, is_known: bool = True) -> int:
    """Searches of noise that differs by day in which a slice is proven."""
    found = 0
    for seed in range(runs):
        given = days(kind, number, seed)
        if not is_known:
            del given["time"]
        found += bool(find_weak_slices(**given, seed=seed).proven)
    return found


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
    return rows_of(proven[0], table)


def rows_of(one: WeakSlice, table: pa.Table) -> Bools:
    """Rows of a slice."""
    return np.asarray(np.logical_and.reduce([holds(condition, table) for condition in one.conditions]))


def planted_over_days(number: int, seed: int) -> tuple[bool, bool, int, int]:
    """Whether a planted slice is found first, with times and without; slices proven, and worse in truth."""
    table, rows = planted(seed)
    rng = np.random.default_rng([seed, 8])
    day = rng.integers(number, size=MANY)
    rate = np.where(rows, 0.15, REST) * np.exp(0.3 * rng.normal(size=number))[day]
    wrong = rng.random(MANY) < rate
    times = np.datetime64("2026-01-05", "us") + day * np.timedelta64(1, "D")
    found = [rows_of(one, table) for one in find_weak_slices(table, wrong, time=times, seed=seed).proven]
    is_found = bool(found) and overlap(found[0], rows) >= 0.6
    worse = sum(bool(rate[one].mean() > rate[~one].mean()) for one in found)
    return is_found, overlap(found_here(table, wrong, seed), rows) >= 0.6, len(found), worse


def found_by_tree(table: pa.Table, wrong: Bools) -> Bools:
    """Rows of the worst leaf of a tree."""
    from sklearn.tree import DecisionTreeClassifier

    x = pd.get_dummies(table.to_pandas()).to_numpy(np.float64)
    tree = DecisionTreeClassifier(max_depth=3, min_samples_leaf=0.01, random_state=0).fit(x, wrong)
    leaf, share = tree.apply(x), tree.predict_proba(x)[:, 1]
    return np.asarray(leaf == leaf[np.argmax(share)])


def show(name: str, false: int, runs: int, data: str) -> None:
    """Share of searches that prove a slice, which may be one in twenty."""
    low = float(beta.ppf(0.025, false, runs - false + 1)) if false else 0.0
    high = float(beta.ppf(0.975, false + 1, runs - false))
    Figure(
        f"{STEM}.false.{name}", false / runs, "of searches", f"at most {ERROR}",
        float(false / runs <= ERROR), 1.0, n=runs, low=low, high=high, data=data,
    ).show()  # fmt: skip


def main() -> None:
    """Print all figures."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    for kind in KINDS:
        show(kind, false_proofs(kind, runs), runs, "noise, 1,500 records")
    some = runs // 10
    for kind, number in product(BY_DAY, (8, 14, 30)):
        data = f"noise, 1,500 records of {number} days that differ"
        show(f"{kind}.{number}", false_by_day(kind, number, some), some, data)
    untold = false_by_day("days", 14, some, is_known=False) / some
    data = "noise, 1,500 records of 14 days that differ, without their times"
    Figure(f"{STEM}.false.untold", untold, "of searches", "1", untold, n=some, data=data).show()
    proven = worse = 0
    for number in (8, 14, 30):
        counts = np.sum([planted_over_days(number, seed) for seed in range(PLANTED // 2)], axis=0).tolist()
        known, unknown = counts[0] / (PLANTED // 2), counts[1] / (PLANTED // 2)
        proven, worse = proven + counts[2], worse + counts[3]
        data = f"6,000 records of {number} days that differ, wrong in 15 % of the slice and in 5 % elsewhere"
        Figure(
            f"{STEM}.found.days.{number}", known, "of planted slices", f"without times: {unknown:.3g}",
            known / max(0.01, unknown), None, n=PLANTED // 2, data=data,
        ).show()  # fmt: skip
    share, data = worse / max(1, proven), "planted ones, by the rates that records are drawn with"
    Figure(f"{STEM}.worse", share, "of proven slices", "0.95", share / 0.95, 1.0, n=proven, data=data).show()
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
