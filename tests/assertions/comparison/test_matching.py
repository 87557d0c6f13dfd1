"""Comparison of answers with labels, over all types that answers and labels come in."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions.comparison.matching import class_numbers, is_numeric, matches, same, spelled_like

BIG = 2**53 + 1


@pytest.mark.parametrize(
    ("answer", "label", "right"),
    [
        (True, 1, True),
        (True, "true", True),
        ("True", True, True),
        (False, 0.0, True),
        (True, 2, False),
        ("1", 1, True),
        ("1.0", 1, True),
        ("01", "1", False),
        ("1", "1.0", False),
        (3, 3.0, True),
        (-0.0, 0, True),
        (BIG, BIG - 1, False),
        (1_000_001, 1_000_000.0, False),
        (np.float32(0.1), 0.1, True),
        (np.float16(0.1), "0.1", True),
        (0.1, 0.1001, False),
        (1e-300, 0.0, False),
        (float("inf"), float("inf"), True),
        (np.float32("inf"), 1e300, False),
        (float("nan"), float("nan"), False),
        (None, None, False),
        ("nan", float("nan"), False),
        (pd.NA, 1, False),
        (Decimal("3.0"), 3, True),
        (np.str_("cat"), "cat", True),
        (10**400, 1.0, False),
        ("9" * 5000, 1, False),
        ("²", 2, False),
        ([1, 2], [1.0, 2], True),
        ([], [], True),
        ([1], [1, 2], False),
        ([{"x": None}], [{"x": None}], True),
        ({"x": 1}, {"y": 1}, False),
        ("[1]", [1], False),
    ],
)
def test_same_by_type(answer: Any, label: Any, right: bool) -> None:
    assert same(answer, label) is right
    assert same(label, answer) is right
    values = np.empty(2, dtype=object)
    values[:] = [[answer], [label]]
    assert matches(*([each[0]] for each in values)).tolist() == [right]


def test_matches_one_missing_value_changes_no_other_row() -> None:
    answers = np.array([3.0, np.nan, 1.0])  # what pandas makes of whole numbers with one missing
    assert matches(answers, np.array([3, 2, 1])).tolist() == [True, False, True]


@pytest.mark.parametrize(
    "kind", ["int8", "uint8", "int64", "uint64", "float16", "float32", "float64", "bool"]
)
def test_matches_every_numeric_type_against_every_spelling(kind: str) -> None:
    answers = np.array([0, 1, 1], dtype=kind)
    for labels in ([0, 1, 0], [0.0, 1.0, 0.0], [False, True, False], ["0", "1", "0"], ["false", "1.0", "x"]):
        assert matches(answers, labels).tolist() == [True, True, False], labels
        assert matches(labels, answers).tolist() == [True, True, False], labels


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b", None]),
        pa.array(["a", "b", None], pa.large_string()),
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.chunked_array([["a"], ["b", None]]),
        pd.Series(["a", "b", None]),
        pd.Categorical(["a", "b", None]),
        np.array(["a", "b", None], dtype=object),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__}.{getattr(column, 'type', '')}",
)
def test_matches_columns_of_text_of_any_library(column: Any) -> None:
    assert matches(column, ["a", "c", "b"]).tolist() == [True, False, False]


def test_matches_unsigned_beyond_signed_are_exact() -> None:
    answers = pa.array([2**63 + 1, 2**63, 5], pa.uint64())
    assert matches(answers, pa.array([2**63 + 1, 2**63 + 1, 5], pa.uint64())).tolist() == [True, False, True]
    assert matches(answers, pa.array([-1, -1, 5], pa.int64())).tolist() == [False, False, True]


def test_matches_tensors_compare_by_element_and_shape() -> None:
    boxes = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    assert matches(boxes, np.array([[1, 2], [3, 5]])).tolist() == [True, False]
    assert matches(boxes, np.zeros((2, 3))).tolist() == [False, False]


def test_matches_of_different_lengths_raises() -> None:
    with pytest.raises(ValueError, match="as many labels as answers"):
        matches([1, 2], [1])


def test_classes_read_what_types_alone_leave_open() -> None:
    assert matches(["1.0"], ["1"]).tolist() == [False]
    assert matches(["1.0"], ["1"], classes=["0", "1"]).tolist() == [True]
    assert class_numbers(["yes", "No", 1], ["no", "yes"]).tolist() == [1, -1, -1]
    assert class_numbers([1, "1"], ["1", "2"]).tolist() == [0, 0]
    assert class_numbers([7, None, float("nan")], [7]).tolist() == [0, -1, -1]
    assert class_numbers([[1]], [1]).tolist() == [-1]


def test_is_numeric_is_not_turned_by_one_odd_answer() -> None:
    assert is_numeric([0.5, 1.5, 2.0])
    assert not is_numeric([1.0] * 99 + [0.5])
    assert not is_numeric(np.array([True, False]))
    assert not is_numeric([])
    assert is_numeric([10**400, 1.5, float("inf")])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_is_numeric_sees_fractions_of_every_float_type(kind: Any) -> None:
    answers = np.array([0.5, 1.5, 2.0, np.nan], dtype=kind)
    assert is_numeric(answers)
    assert is_numeric(pa.array(answers))
    assert is_numeric(list(answers))
    assert not is_numeric(np.floor(answers))


def test_spelled_like_keeps_the_answers_spelling() -> None:
    assert spelled_like(["1", 1.0, True, "x"], [1, 0]) == [1, 1, 1, "x"]
    assert spelled_like(["3.1", "3.10"], ["3.10"]) == ["3.1", "3.10"]
    assert spelled_like([0.30000000000000004, 0.1000004999999], [np.float32(0.3), 0.1000005]) == [
        np.float32(0.3),
        0.1000005,
    ]


WHOLE = st.integers(-(2**62), 2**62) | st.integers(-3, 3)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    WHOLE,
    st.floats(),
    WHOLE.map(str),
    st.floats().map(str),
    st.sampled_from(["true", "False", "cat", "", "1.0", "0"]),
    st.floats(width=32).map(np.float32),
)


def test_matches_a_coarse_float_stays_coarse_beside_other_types() -> None:
    assert matches([1.5e-226, 0.5], [np.float32(0.0), False]).tolist() == [True, False]
    assert matches([np.float16(0.1), 2], [0.09998, 2.5]).tolist() == [True, False]


@given(st.lists(st.tuples(SCALARS, SCALARS), max_size=8))
def test_columns_agree_with_single_values(pairs: list[tuple[Any, Any]]) -> None:
    answers, labels = [one for one, _ in pairs], [other for _, other in pairs]
    expected = [same(one, other) for one, other in pairs]
    assert matches(np.array([*answers, None], dtype=object)[:-1], labels).tolist() == expected
    assert matches(labels, answers).tolist() == expected


COLUMNS = {
    "bool": st.booleans(),
    "int64": WHOLE,
    "uint64": st.integers(0, 2**64 - 1),
    "float32": st.floats(width=32),
    "float64": st.floats() | WHOLE.map(float),
    "string": st.sampled_from(["1", "0", "1.0", "true", "x", "0.1", "01"]),
}


@given(st.data(), st.sampled_from(sorted(COLUMNS)), st.sampled_from(sorted(COLUMNS)))
def test_typed_columns_are_symmetric_and_agree_with_single_values(
    data: st.DataObject, kind: str, other: str
) -> None:
    rows = data.draw(st.lists(st.tuples(st.none() | COLUMNS[kind], st.none() | COLUMNS[other]), max_size=6))
    left = pa.array([one for one, _ in rows], pa.type_for_alias(kind))
    right = pa.array([two for _, two in rows], pa.type_for_alias(other))
    found = matches(left, right).tolist()
    assert found == matches(right, left).tolist()
    typed: list[Callable[[Any], Any]] = [
        np.float32 if each == "float32" else (lambda value: value) for each in (kind, other)
    ]
    expected = [
        one is not None and two is not None and same(typed[0](one), typed[1](two)) for one, two in rows
    ]
    assert found == expected
