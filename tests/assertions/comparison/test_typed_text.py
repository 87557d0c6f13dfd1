"""Answers and labels as text: what is read is what was written, type and all."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions.comparison.matching import matches, same
from outrider.assertions.comparison.typed_text import plain_text, read_typed, typed_texts

ODD = ["1", "-0", "1e5", "true", "True", "nan", "inf", "-inf", '"', '"1"', '"a', "", " 1", "01", "NaN", "1_0"]


@given(st.lists(st.none() | st.sampled_from(ODD) | st.text(), max_size=6))
def test_texts_come_back_as_texts(values: list[str | None]) -> None:
    stored = typed_texts(pa.array(values, pa.string()))
    assert [read_typed(text) for text in stored] == values
    assert [plain_text(text) for text in stored] == values


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.lists(st.booleans()), st.lists(st.floats()))
def test_numbers_and_booleans_come_back_with_their_value(
    whole: list[int | None], switches: list[bool], fractions: list[float]
) -> None:
    assert [read_typed(text) for text in typed_texts(pa.array(whole, pa.int64()))] == whole
    back = [read_typed(text) for text in typed_texts(pa.array(switches, pa.bool_()))]
    assert back == switches
    assert all(isinstance(value, bool) for value in back)
    for value, read in zip(
        fractions, map(read_typed, typed_texts(pa.array(fractions, pa.float64()))), strict=True
    ):
        assert read == value or (math.isnan(read) and math.isnan(value))


SCALARS: st.SearchStrategy[Any] = (
    st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from([*ODD, "cat"]) | st.none()
)


@given(SCALARS, SCALARS)
def test_stored_texts_match_as_the_values_do(answer: Any, label: Any) -> None:
    stored = [typed_texts(pa.array([value]))[0] for value in (answer, label)]
    assert same(*map(read_typed, stored)) == same(answer, label)


def test_texts_of_the_previous_release_are_read() -> None:
    # It wrote the text "1" as it wrote the number: either is taken for a label that says 1.
    answers, labels = ["1", "true", '"oh" no'], ['"1"', "1", '"oh" no']
    assert matches([*map(read_typed, answers)], [*map(read_typed, labels)]).tolist() == [True, True, True]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_other_types_of_text(kind: pa.DataType) -> None:
    assert typed_texts(pa.array(["7", "cat", None]).cast(kind)) == ['"7"', "cat", None]
