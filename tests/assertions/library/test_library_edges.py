import pytest

from outrider.assertions import Batch
from outrider.assertions.learn.observations import learn_observations
from outrider.assertions.library.json_answers import json_problems
from outrider.assertions.library.text import length


def test_a_huge_whole_number_is_one() -> None:
    assert json_problems("1" + "0" * 400, {"type": "integer"}) == []


@pytest.mark.parametrize("text", ["1e999", "[1e999]", '{"a": 1e999}'])
def test_infinity_is_no_json_wherever_it_stands(text: str) -> None:
    assert json_problems(text, True) == ["no JSON: number out of range"]


def test_depth_that_reading_stands_and_judging_does_not_is_a_problem_not_a_crash() -> None:
    for depth in range(900, 1010):
        assert json_problems("[" * depth + "]" * depth, {"type": "object"})


def test_a_reference_without_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one text"):
        length(reference=[])


def test_learned_densities_take_infinity_for_odd_and_an_absent_column_for_unknown() -> None:
    seen = Batch.from_columns({"inputs.h": [float(n % 7) for n in range(200)]}, model="m")
    learned = learn_observations(seen, features={"h": "inputs.h"})
    odd = Batch.from_columns({"inputs.h": [3.0, float("inf")]}, model="m")
    assert (learned.assertion().severities(odd) > 0).tolist() == [False, True]
    absent = Batch.from_columns({"inputs.other": [1.0, 2.0]}, model="m")
    assert learned.assertion().severities(absent).tolist() == [0.0, 0.0]
    with pytest.raises(KeyError, match="to learn from"):
        learn_observations(absent, features={"h": "inputs.h"})
