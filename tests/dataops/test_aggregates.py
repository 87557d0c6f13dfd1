"""Verdicts on aggregates that versions hand on are those on all of their rows."""

import json
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.dataops.datasets import expectations as gx
from outrider.dataops.datasets.aggregates import (
    NUMBERS,
    SETS,
    Aggregates,
    aggregates,
    can_judge,
    class_mix,
    class_shift,
    merged,
    metrics,
    range_growth,
)
from outrider.dataops.datasets.suite_files import Expected

NAMED: list[Any] = ["a", "b", "c"]
ROWS = 60
WITHIN = ((-1.0, 1.0), (None, 3.0), (0.5, None))


def critical(kind: str, **kwargs: Any) -> Expected:
    return {"type": kind, "kwargs": kwargs, "severity": "critical"}


def numeric(column: str) -> list[Expected]:
    return [
        critical(kind, column=column, min_value=low, max_value=high)
        for kind in NUMBERS
        for low, high in WITHIN
    ]


def named(column: str) -> list[Expected]:
    partition = {"values": NAMED, "weights": [0.5, 0.3, 0.2]}
    divergence = {"partition_object": partition, "threshold": 0.2, "tail_weight_holdout": 0.01}
    sets = [critical(kind, column=column, value_set=NAMED) for kind in SETS]
    return [*sets, critical("expect_column_kl_divergence_to_be_less_than", column=column, **divergence)]


def columns() -> dict[str, "pd.Series[Any]"]:
    """Columns of the same rows: plain, with nulls, constant, one value, whole, and sets of every kind."""
    rng = np.random.default_rng(0)
    normal = rng.normal(0.3, 1.5, ROWS)
    one = np.full(ROWS, np.nan)
    one[17] = 0.7
    null = rng.random(ROWS) < 0.3
    whole = rng.integers(-3, 5, ROWS)
    letters = {
        "only": rng.choice(["a", "b", "c"], ROWS),
        "more": rng.choice(["a", "b", "c", "d", "e"], ROWS),
        "fewer": rng.choice(["a", "b"], ROWS),
        "other": np.full(ROWS, "d"),
    }
    texts = {name: pd.Series(values, dtype="str") for name, values in letters.items()}
    texts["holes"] = texts["more"].mask(null)
    return {
        "normal": pd.Series(normal),
        "large": pd.Series(normal + 1e7),
        "nulls": pd.Series(np.where(null, np.nan, normal)),
        "constant": pd.Series(np.full(ROWS, 0.6)),
        "one": pd.Series(one),
        "whole": pd.Series(whole),
        "masked": pd.Series(pd.arrays.IntegerArray(whole, null)),
        "truth": pd.Series(whole > 0),
        **texts,
    }


TABLE = pd.DataFrame(columns())
TEXTS = [str(name) for name in TABLE if TABLE[name].dtype == "str"]
SUITE = [
    *(item for name in map(str, TABLE) for item in (named(name) if name in TEXTS else numeric(name))),
    critical("expect_table_row_count_to_be_between", min_value=10),
    critical("expect_table_row_count_to_equal", value=10),
]


@cache
def verdicts() -> list[gx.ExpectationVerdict]:
    """The library's, on all rows."""
    return gx.ask(TABLE, SUITE)


def of(table: pd.DataFrame) -> Aggregates:
    sets = [(name, NAMED) for name in TEXTS]
    found = aggregates(len(table), ((str(name), column) for name, column in table.items()), sets)
    assert json.loads(json.dumps(found)) == found  # it stands in a manifest
    return found


@settings(max_examples=10, deadline=None)
@given(st.sets(st.integers(1, ROWS - 1), max_size=5))
def test_aggregates_of_parts_judge_as_the_library_judges_all_rows(cuts: set[int]) -> None:
    bounds = [0, *sorted(cuts), ROWS]
    state, *parts = [of(TABLE.iloc[begin:end]) for begin, end in pairwise(bounds)]
    for part in parts:
        state = merged(state, part)
    assert len(verdicts()) == len(SUITE) > 100
    for expected in verdicts():
        item = expected.item
        assert not expected.error, expected.reason
        if not can_judge(state, item):
            assert "partition_object" in item["kwargs"]
            assert item["kwargs"]["column"] in ("more", "holes", "other")
            continue
        found = gx.decide(item, metrics(state, item))
        assert not found.error, (item, found.error)
        observed, truth = (each.figures.get("observed_value") for each in (found, expected))
        if truth is not None:  # of truth values and sets it is none
            assert observed == pytest.approx(truth, rel=1e-6, abs=1e-6)
        assert found.success == expected.success, item


def frame(rows: list[tuple[float | None, str | None]]) -> pd.DataFrame:
    """Frame of numbers and texts."""
    x = np.array([np.nan if x is None else x for x, _ in rows])
    return pd.DataFrame({"x": x, "only": pd.Series([s for _, s in rows], dtype="str")})


def test_merging_does_not_depend_on_the_order() -> None:
    rng = np.random.default_rng(0)
    parts = [of(frame([(float(x), "a") for x in rng.normal(1e6, 1, 50)])) for _ in range(5)]
    left = parts[0]
    for part in parts[1:]:
        left = merged(left, part)
    right = parts[-1]
    for part in reversed(parts[:-1]):
        right = merged(part, right)
    for key in ("count", "min", "max", "mean", "m2"):
        assert left["columns"]["x"][key] == pytest.approx(right["columns"]["x"][key], rel=1e-9)


def test_a_column_that_one_side_does_not_know_is_left_out_unless_it_was_absent() -> None:
    old, new = of(frame([(1.0, "a")] * 3)), of(frame([(2.0, "b")]))
    del old["columns"]["x"]
    assert "x" not in merged(old, new)["columns"]
    filled = merged(old, new, absent=["x", "only"])
    assert filled["columns"]["x"] == {"nulls": 3, "count": 1, "min": 2.0, "max": 2.0, "mean": 2.0, "m2": 0.0}
    assert filled["columns"]["only"]["of"][json.dumps(NAMED)] == [3, 1, 0, 0]


def test_no_text_of_a_record_stands_in_the_aggregates() -> None:
    table = frame([(1.0, "secret"), (2.0, "a")])
    assert "secret" not in json.dumps(of(table))


def test_a_condition_on_rows_does_not_add_up() -> None:
    item = critical("expect_column_mean_to_be_between", column="x", row_condition="x>0")
    assert not can_judge(of(frame([(1.0, "a")])), item)


def test_class_mixes_and_ranges_are_compared() -> None:
    state = of(frame([(0.0, "a"), (1.0, "a"), (2.0, "b"), (4.0, "d"), (None, None)]))
    mix = class_mix(state, "only", NAMED)
    assert mix == [0.5, 0.25, 0.0, 0.25]
    assert class_shift([1.0, 0.0, 0.0, 0.0], [0.5, 0.25, 0.0, 0.25]) == 0.5
    assert class_mix(state, "only", ["other"]) is None
    x = state["columns"]["x"]
    assert range_growth(x, x | {"max": 12.0}) == 2.0
    assert range_growth(x, x | {"min": -4.0}) == 1.0
    assert range_growth(x | {"max": 0.0}, x) is None
