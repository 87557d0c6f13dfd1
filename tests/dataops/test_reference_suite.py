"""Suites from reference rows: what the same source makes passes, what another makes does not."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.dataops.datasets import expectations as gx
from outrider.dataops.datasets.reference_suite import reference_suite
from outrider.dataops.datasets.suite_files import Expected

Columns = dict[str, Any]


def source(rng: np.random.Generator, rows: int) -> Columns:
    """Light and heavy tails, counts, rare values, nulls, categories, texts, ids, constants."""
    zero = rng.random(rows) < 0.8
    tail = 0.5 ** np.arange(15)
    return {
        "inputs.normal": rng.normal(5, 2, rows),
        "inputs.lognormal": rng.lognormal(0, 1, rows),
        "inputs.cauchy": rng.standard_cauchy(rows),
        "inputs.poisson": rng.poisson(3, rows),
        "inputs.mostly_zero": np.where(zero, 0.0, rng.exponential(1, rows)),
        "inputs.constant": np.full(rows, 3.0),
        "inputs.rare": (rng.random(rows) < 0.002).astype(int),
        "inputs.nulls": np.where(rng.random(rows) < 0.05, np.nan, rng.normal(0, 1, rows)),
        "inputs.letter": rng.choice(list("abcd"), rows, p=[0.5, 0.3, 0.15, 0.05]),
        "inputs.tail": rng.choice([f"v{i}" for i in range(15)], rows, p=tail / tail.sum()),
        "inputs.text": ["x" * length for length in rng.geometric(0.05, rows)],
        "inputs.number": rng.integers(0, 10**6, rows),
        "inputs.truth": rng.random(rows) < 0.3,
        "inputs.two_humps": rng.normal(np.where(rng.random(rows) < 0.5, -5, 5), 1),
        "label.label": rng.choice([0, 1, 2], rows, p=[0.6, 0.3, 0.1]),
    }


@cache
def suite_of(seed: int, rows: int, **options: Any) -> list[Expected]:
    columns = source(np.random.default_rng([seed, rows]), rows)
    return reference_suite(Batch.from_columns(columns, model="m", rows=rows), **options)


def holds(item: Expected, column: "pd.Series[Any]") -> bool:
    """An expectation's verdict, spelled out: as the library's (below), a thousand times as fast."""
    kwargs, kind, present = item["kwargs"], item["type"], column.dropna()
    mostly, low, high = kwargs.get("mostly", 1), kwargs.get("min_value"), kwargs.get("max_value")
    shares: dict[str, Callable[[], Any]] = {
        "values_to_not_be_null": lambda: column.notna(),
        "values_to_be_in_set": lambda: present.isin(kwargs["value_set"]),
        "values_to_be_between": lambda: present.between(low, high),
        "value_lengths_to_be_between": lambda: present.str.len().between(low, high),
    }
    figures: dict[str, Callable[[], float]] = {
        "mean_to_be_between": lambda: float(present.mean()),
        "median_to_be_between": lambda: float(present.median()),
        "stdev_to_be_between": lambda: float(present.std()),
    }
    name = kind.removeprefix("expect_column_")
    if name in shares:
        return bool(shares[name]().mean() >= mostly)
    if name in figures:
        return bool(low <= figures[name]() <= high)
    if name == "values_to_be_in_type_list":
        return bool(str(column.dtype) in kwargs["type_list"])
    assert name == "kl_divergence_to_be_less_than"
    return bool(divergence(kwargs, present) <= kwargs["threshold"])


def divergence(kwargs: dict[str, Any], present: "pd.Series[Any]") -> float:
    partition, rest = kwargs["partition_object"], kwargs["tail_weight_holdout"]
    expected = dict(zip(partition["values"], partition["weights"], strict=True))
    shares = present.value_counts(normalize=True)
    new = [value for value in shares.index if value not in expected]
    scale = 1 - rest if new else 1.0
    weights = {v: expected[v] * scale if v in expected else rest / len(new) for v in shares.index}
    return float(sum(share * np.log(share / weights[value]) for value, share in shares.items()))


def broken(suite: list[Expected], columns: Columns) -> list[str]:
    table = pd.DataFrame(columns)
    types = {item["kwargs"]["column"]: item for item in suite if "type_list" in item["kwargs"]}
    odd = [name for name, item in types.items() if not holds(item, table[name])]
    if odd:  # no number: the library refuses to compare
        return [f"{name} type" for name in odd]
    return [
        f"{item['kwargs']['column']} {item['type']}"
        for item in suite
        if not holds(item, table[item["kwargs"]["column"]])
    ]


@pytest.mark.parametrize("rows", [100, 1000, 5000])
@pytest.mark.parametrize("fresh_rows", [100, 1000])
def test_fresh_samples_of_the_same_source_pass(rows: int, fresh_rows: int) -> None:
    """Of 40 samples of 15 columns one in a hundred may fail: 5 of them are less likely than 1e-4."""
    failures: Counter[str] = Counter()
    failed = 0
    for seed in range(40):
        fresh = source(np.random.default_rng([seed, rows, fresh_rows]), fresh_rows)
        found = broken(suite_of(seed // 10, rows), fresh)
        failures.update(found)
        failed += bool(found)
    assert failed < 5, failures


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("inputs.normal", lambda values: values + 2.5),
        ("inputs.normal", lambda values: values * 2.5),
        ("inputs.lognormal", lambda values: values * 1000),
        ("inputs.cauchy", lambda values: values + 5),
        ("inputs.poisson", lambda values: values + 3),
        ("inputs.mostly_zero", lambda values: values * 0 + 1),
        ("inputs.constant", lambda values: values + 1),
        ("inputs.rare", lambda values: values * 0 + 1),
        ("inputs.nulls", lambda values: np.where(np.arange(len(values)) % 3, values, np.nan)),
        ("inputs.letter", lambda values: np.where(values == "a", "e", values)),
        ("inputs.letter", lambda values: np.where(values == "a", "d", values)),
        ("inputs.text", lambda values: [text * 20 for text in values]),
        ("inputs.number", lambda values: [str(value) for value in values]),
        ("inputs.truth", lambda values: ~values),
        ("inputs.two_humps", lambda values: np.abs(values)),
        ("label.label", lambda values: 2 - values),
    ],
)
def test_samples_of_another_source_fail(column: str, change: Callable[[Any], Any]) -> None:
    for seed in range(5):
        fresh = source(np.random.default_rng([seed, 7]), 300)
        shifted = fresh | {column: change(fresh[column])}
        suite = suite_of(seed, 1000)
        assert [line for line in broken(suite, shifted) if line.startswith(f"{column} ")], (column, seed)


def test_the_library_says_the_same_of_every_expectation() -> None:
    suite = suite_of(0, 1000)
    table = pd.DataFrame(source(np.random.default_rng(5), 300))
    table["inputs.letter"] = table["inputs.letter"].replace("a", "e").astype("str")
    table["inputs.normal"] += 3
    table["label.label"] = 2 - table["label.label"]
    kinds = {item["type"] for item in suite}
    assert len(kinds) == 9
    for outcome in gx.ask(table, suite):
        assert not outcome.error, outcome.reason
        expected = holds(outcome.item, table[outcome.item["kwargs"]["column"]])
        assert outcome.success == expected, outcome.reason


def test_images_are_judged_by_their_figures() -> None:
    rng = np.random.default_rng(0)

    def images(rows: int) -> NDArray[np.float32]:
        return rng.random((rows, 4, 4), np.float32)

    batch = Batch.from_columns({"inputs.image": images(200)}, model="m", rows=200)
    columns = {item["kwargs"]["column"] for item in reference_suite(batch)}
    assert columns == {"inputs.image.min", "inputs.image.max", "inputs.image.mean"}


def test_the_same_rows_make_the_same_suite_and_smaller_samples_a_wider_one() -> None:
    assert suite_of(0, 500) == suite_of.__wrapped__(0, 500)
    wide, narrow = suite_of(0, 500, sample_rows=50), suite_of(0, 500, sample_rows=5000)
    mean = [item["kwargs"] for suite in (wide, narrow) for item in suite
            if item["type"] == "expect_column_mean_to_be_between"
            and item["kwargs"]["column"] == "inputs.normal"]  # fmt: skip
    assert mean[0]["min_value"] < mean[1]["min_value"] < mean[1]["max_value"] < mean[0]["max_value"]


def test_too_few_rows_teach_nothing() -> None:
    with pytest.raises(ValueError, match="30 rows or more expected to learn a suite from, got 29"):
        suite_of(0, 29)
    with pytest.raises(ValueError, match="sample_rows >= 2 and chance"):
        suite_of(0, 100, chance=1.0)
