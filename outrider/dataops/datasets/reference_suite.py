"""Suites of expectations from reference rows, for fresh samples to pass.

Every bound is a prediction bound for ``sample_rows`` rows or more, so that all expectations together fail by
chance with at most ``chance``. A mean is expected where no row dominates the squares, else a median; a
deviation where none dominates the fourth powers; the others assume no distribution.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .frames import values_by_name
from .suite_files import Expected

if TYPE_CHECKING:
    import pandas as pd

MOST_VALUES = 20
"""Distinct values up to which a column is judged by the values themselves."""
DRAWS = 20_000
MOST_SINGLE = 0.05
"""Most rows with a unique value for that, as a share."""
DOMINATED = 0.1
"""Share of the squares that one row may have if a mean is expected."""
DOMINATED_FOURTH = 0.2
"""Share of the fourth powers that one row may have if a deviation is expected."""
_INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
_TYPES = {
    "i": [*_INTEGERS, *(name.replace("int", "Int").replace("uI", "UI") for name in _INTEGERS)],
    "f": ["float16", "float32", "float64"],
    "b": ["bool", "boolean"],
}


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Prediction bounds for samples of ``rows`` rows, each exceeded with chance ``alpha``."""

    rows: int
    alpha: float
    rng: np.random.Generator

    def share(self, seen: float, of: int) -> float:
        """Largest share of a fresh sample that ``seen`` of ``of`` reference rows predict."""
        from scipy.stats import betabinom

        most = betabinom.ppf(1 - self.alpha, self.rows, seen + 1, max(of - seen, 0) + 1)
        return float(min(most / self.rows, 1.0))

    def mostly(self, odd: float, of: int) -> float:
        """Least share of conforming rows in a fresh sample, rounded down to thousandths."""
        return max(0.0, float(np.floor((1 - self.share(odd, of)) * 1000)) / 1000)

    def distance(self, deviation: float, of: int) -> float:
        from scipy.stats import t

        quantile = float(t.ppf(1 - self.alpha / 4, max(min(of, self.rows) - 1, 1)))
        return quantile * deviation * float(np.sqrt(1 / of + 1 / self.rows))

    def median(self, values: NDArray[np.float64]) -> tuple[float, float]:
        """Order statistics around a fresh median: David and Nagaraja, "Order Statistics", 2003, 7.3."""
        from scipy.stats import betabinom

        ranks = np.arange(1, len(values) + 1)
        below = betabinom.cdf((self.rows + 1) // 2, self.rows, ranks, len(values) - ranks + 1)
        high = int(np.argmax(below <= self.alpha / 2)) if (below <= self.alpha / 2).any() else len(values) - 1
        ordered = np.sort(values)
        return float(ordered[len(values) - 1 - high]), float(ordered[high])

    def divergence(self, counts: NDArray[np.int64]) -> tuple[list[float], float, float]:
        """Weights of the values, that of all others, and the largest divergence of a fresh sample."""
        smooth = np.append(counts, 0) + 1.0
        weights = smooth / smooth.sum()
        mixes = self.rng.dirichlet(smooth, size=DRAWS)
        shares = self.rng.multinomial(self.rows, mixes) / self.rows
        # The library scales the weights down only where another value has come.
        expected = np.where(shares[:, -1:] > 0, weights, np.append(weights[:-1] / (1 - weights[-1]), 1.0))
        terms = shares * np.log(np.divide(shares, expected, where=shares > 0, out=np.ones_like(shares)))
        known = weights[:-1] / (1 - weights[-1])
        return known.tolist(), float(weights[-1]), float(terms.sum(axis=1).max() * 1.25)


def reference_suite(
    batch: Batch, *, sample_rows: int = 100, chance: float = 0.01, seed: int = 0
) -> list[Expected]:
    """``sample_rows`` is the smallest version or append to pass the suite."""
    if batch.rows < 30:
        raise ValueError(f"30 rows or more expected to learn a suite from, got {batch.rows}")
    if sample_rows < 2 or not 0 < chance < 1:
        raise ValueError(f"sample_rows >= 2 and chance in (0, 1) expected, got {sample_rows} and {chance}")
    columns = list(values_by_name(batch, [n for n in batch.names if n.startswith(("inputs.", "label."))]))
    # Six expectations a column at most.
    alpha = chance / (6 * max(len(columns), 1))
    bounds = _Bounds(sample_rows, alpha, np.random.default_rng(seed))
    suite: list[Expected] = []
    for name, values in columns:
        for kind, kwargs in _of_column(values, bounds):
            suite.append({"type": kind, "kwargs": {"column": name} | kwargs, "severity": "critical"})
    return suite


def _of_column(values: "pd.Series[Any]", bounds: _Bounds) -> Iterator[tuple[str, dict[str, Any]]]:
    present = values.dropna()
    yield (
        "expect_column_values_to_not_be_null",
        {"mostly": bounds.mostly(len(values) - len(present), len(values))},
    )
    if len(present) < 30:
        return
    kind = "i" if values.dtype.kind in "iu" else values.dtype.kind
    if kind in _TYPES:
        # Whole numbers become floating ones where a value is missing, and so in other tools too.
        names = _TYPES["i"] + _TYPES["f"] if kind == "i" else _TYPES[kind]
        yield "expect_column_values_to_be_in_type_list", {"type_list": names}
    counts = _counted(present)
    if counts is not None:
        yield from _of_values(counts, len(present), bounds)
    elif kind in "if":
        yield from _of_numbers(present.to_numpy(dtype=np.float64), bounds)
    elif kind not in "bM" and present.map(lambda value: isinstance(value, str)).all():
        yield from _of_lengths(np.asarray(present.str.len(), dtype=np.int64), bounds)


def _counted(present: "pd.Series[Any]") -> "pd.Series[int] | None":
    """None unless values are few and repeat."""
    try:
        counts = present.value_counts()
    except TypeError:  # lists
        return None
    single = int((counts == 1).sum())
    return counts if len(counts) <= MOST_VALUES and single <= MOST_SINGLE * len(present) else None


def _of_values(counts: "pd.Series[int]", rows: int, bounds: _Bounds) -> Iterator[tuple[str, dict[str, Any]]]:
    """As many values are new as came once (Good and Turing)."""
    values = [value.item() if hasattr(value, "item") else value for value in counts.index]
    once = int((counts == 1).sum())
    yield "expect_column_values_to_be_in_set", {"value_set": values, "mostly": bounds.mostly(once, rows)}
    weights, rest, most = bounds.divergence(np.asarray(counts, dtype=np.int64))
    yield (
        "expect_column_kl_divergence_to_be_less_than",
        {
            "partition_object": {"values": values, "weights": weights},
            "threshold": most,
            "tail_weight_holdout": rest,
        },
    )


def _of_numbers(values: NDArray[np.float64], bounds: _Bounds) -> Iterator[tuple[str, dict[str, Any]]]:
    rows, low, high = len(values), float(values.min()), float(values.max())
    # Of a fresh row the chance to lie beyond both ends is that of the end's own row to be there: 2 of n + 1.
    within = {"min_value": low, "max_value": high, "mostly": bounds.mostly(2, rows)}
    yield "expect_column_values_to_be_between", within
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    squares = np.square(values - mean)
    if squares.max() > DOMINATED * squares.sum():
        least, most = bounds.median(values)
        yield "expect_column_median_to_be_between", {"min_value": least, "max_value": most}
        return
    slack = bounds.distance(deviation, rows)
    yield "expect_column_mean_to_be_between", {"min_value": mean - slack, "max_value": mean + slack}
    fourth = np.square(squares)
    if fourth.max() > DOMINATED_FOURTH * fourth.sum():
        return
    # The square deviation of a sample varies with the fourth moment.
    kurtosis = float(fourth.mean() / np.square(squares.mean()))
    spread = bounds.distance(max(kurtosis - 1, 0.0) ** 0.5, rows)
    yield (
        "expect_column_stdev_to_be_between",
        {
            "min_value": deviation * max(1 - spread, 0.0) ** 0.5,
            "max_value": deviation * (1 + spread) ** 0.5,
        },
    )


def _of_lengths(lengths: NDArray[np.int64], bounds: _Bounds) -> Iterator[tuple[str, dict[str, Any]]]:
    within = {"min_value": int(lengths.min()), "max_value": int(lengths.max())}
    yield "expect_column_value_lengths_to_be_between", within | {"mostly": bounds.mostly(2, len(lengths))}
