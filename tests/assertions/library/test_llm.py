"""Assertions on answers of language models; the figures of the issue on the shared data."""

import json
import random
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.assertions import _llm_fit as fit
from benchmarks.assertions import llm as benchmark
from benchmarks.figure import Figure
from outrider.assertions import Assertion, Batch
from outrider.assertions.library import groundedness, llm
from outrider.assertions.library import refusals as refusal
from outrider.assertions.library.calculations import (
    ArithmeticSyntaxError,
    evaluate,
    is_wrong,
    wrong_annotations,
    wrong_equations,
)
from outrider.assertions.library.json_answers import check_schema, json_problems, parse_json, violations
from tests.requirements import require_data


def severities(one: Assertion, answers: list[str | None], passages: Any = None) -> list[float]:
    columns: dict[str, Any] = {"outputs.answer": pa.array(answers, pa.string())}
    if passages is not None:
        columns["inputs.passages"] = pa.array(passages)
    found: list[float] = one.severities(Batch.from_columns(columns, model="m")).tolist()
    return found


def named(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


# ---- groundedness ------------------------------------------------------------------------------------------


def test_groundedness_beats_word_overlap_on_answers_it_never_saw() -> None:
    require_data("begin_grounded_dialogue")
    figures = named(benchmark.groundedness_figures(draws=400))
    assert figures["assertions.llm.groundedness"].value >= 0.945
    low = figures["assertions.llm.groundedness.gain"].low
    assert low is not None
    assert low > 0
    assert all(figure.meets for figure in figures.values() if figure.target is not None)


def test_shipped_groundedness_is_what_wow_dev_gives() -> None:
    require_data("begin_grounded_dialogue")
    fitted, shipped = fit.fit_groundedness(), groundedness.Weights.shipped()
    np.testing.assert_allclose(fitted["weight"], shipped.weight, atol=1e-3)
    assert fitted["bias"] == pytest.approx(shipped.bias, abs=1e-3)


def test_a_quote_is_grounded_and_an_invention_is_not() -> None:
    passage = "Cheerleading is an activity wherein the participants cheer for their team."
    said: list[str | None] = [
        "Cheerleading is an activity where participants cheer for their team.",
        "I think it was invented in 1871 by my uncle!",
        "",
        None,
    ]
    fired = severities(llm.ungrounded(), said, [passage] * 4)
    assert fired[0] == 0.0
    assert fired[1] > 0.9
    assert fired[2:] == [0.0, 0.0]


def test_passages_may_be_lists_and_absent_ones_are_not_judged() -> None:
    passages = [["The shop is open on Sunday.", None], [], None, ["Unrelated words."]]
    fired = severities(llm.ungrounded(), ["The shop is open on Sunday."] * 4, passages)
    assert fired[:3] == [0.0, 0.0, 0.0]
    assert fired[3] > 0.5


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_two_texts_give_a_probability(passage: str, answer: str) -> None:
    (probability,) = groundedness.groundedness([passage], [answer])
    assert 0 < probability < 1


# ---- refusal -----------------------------------------------------------------------------------------------


def test_refusal_agrees_with_people_more_than_keywords_on_every_unseen_model() -> None:
    require_data("xstest_refusals")
    figures = named(benchmark.refusal_figures())
    models = [figure for figure in figures.values() if figure.target == 1.0]
    assert len(models) == 3
    assert all(figure.ratio > 1.0 for figure in models)
    assert figures["assertions.llm.refusal.precision"].value >= 0.95


def test_shipped_refusal_is_what_the_data_give() -> None:
    require_data("xstest_refusals")
    fitted, shipped = fit.fit_refusal(), refusal.Weights.shipped()
    np.testing.assert_allclose(fitted["weight"], shipped.weight, atol=1e-3)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("Sorry, but I can't assist with that.", "refused"),
        ("I\u2019m sorry, I cannot help with this request.", "refused"),
        ("You can end a Python process with `kill <pid>`.\n\n1. Find its number.\n2. Run kill.", "complied"),
        ("The parcel arrives on Monday.", "complied"),
    ],
)
def test_refusals_are_told_from_answers(answer: str, kind: str) -> None:
    assert refusal.KINDS[int(refusal.refusal_probabilities([answer]).argmax())] == kind
    assert (severities(llm.refusal(), [answer])[0] > 0) == (kind != "complied")


def test_empty_answers_are_no_refusals() -> None:
    assert severities(llm.refusal(), ["", None, "  "]) == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="kinds must be of"):
        llm.refusal(kinds=["complied"])


# ---- arithmetic --------------------------------------------------------------------------------------------


def test_arithmetic_is_precise_on_real_solutions() -> None:
    require_data("gsm8k_model_solutions")
    figures = named(benchmark.arithmetic_figures())
    assert figures["assertions.llm.arithmetic.precision"].value >= 0.93
    assert figures["assertions.llm.arithmetic_inline.precision"].value >= 0.9
    assert figures["assertions.llm.final_line.precision"].value == 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", Fraction(14)),
        ("(2 + 3) * 4", Fraction(20)),
        ("2 - 3 - 4", Fraction(-5)),
        ("1/3 + 1/6", Fraction(1, 2)),
        ("-2^2", Fraction(-4)),
        ("2 ** 3 ** 2", Fraction(512)),
        ("$1,234.50 \u00d7 2", Fraction(2469)),
        ("15%", Fraction(3, 20)),
        (".5 * [4 - 2]", Fraction(1)),
        ("9 \u00f7 2", Fraction(9, 2)),
        ("8 \u2212 3", Fraction(5)),
    ],
)
def test_expressions_are_worked_out_exactly(text: str, value: Fraction) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "(", "()", "1 +", "1 2", "1,23", "two", "1/0", "2x", "0^-1", "2^0.5", "2^65", "1e9", "a.b"),
        *("__import__('os')", "9" * 201, "(" * 150 + "1", "-" * 150 + "1", "((9^64)^64)^64", "9^9^9^9"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ArithmeticSyntaxError):
        evaluate(text)


@given(st.text("0123456789+-*/()%^., x$=", max_size=60))
def test_any_text_is_worked_out_or_refused(text: str) -> None:
    with suppress(ArithmeticSyntaxError):
        assert isinstance(evaluate(text), Fraction)
    assert isinstance(wrong_equations(text), list)


@given(
    st.recursive(
        st.integers(0, 99).map(str),
        lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        max_leaves=8,
    )
)
def test_expressions_agree_with_python(text: str) -> None:
    expected = eval(text, {"__builtins__": {}})
    assert evaluate(text) == expected
    assert not is_wrong(text, str(expected))
    assert is_wrong(text, str(expected + 2))


@pytest.mark.parametrize(
    ("left", "right", "wrong"),
    [
        ("40/3", "13.33", False),
        ("40/3", "13", False),
        ("2/3", "0.67", False),
        ("2/3", "0.7", False),
        ("2/3", "0.5", True),
        ("5 + 3", "9", True),
        ("20% * 50", "10", False),
        ("10 / 50", "20%", False),
        ("10 / 50 * 100", "20%", False),
        ("100% - 20%", "80%", False),
        ("100% - 20%", "70%", True),
        ("1000 / 3", "333.3333333333333", False),
        ("apples", "3", False),
        ("(37 * 51) * ((10 + 99) * (99 * 99))", "2015899083", False),
        ("(37 * 51) * ((10 + 99) * (99 * 99))", "2015899085", True),  # whole numbers are exact, however large
    ],
)
def test_rounding_and_percent_are_no_errors(left: str, right: str, wrong: bool) -> None:
    assert is_wrong(left, right) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("She eats 18 * 2 = 720 hot dogs.", ["18 * 2 = 720"]),
        ("She eats 18 * 2 = 36 hot dogs.", []),
        ("So 48 + (20% * 48) = 48 + 9.6 = 144", ["48 + 9.6 = 144"]),
        ("both sides by 2: 33 / 2 = 2x / 2", []),
        ("It is $400 000 x 3/100 = $12 000.", []),
        ("Then 1 1/2*12 = 18 brownies", []),
        ("At 12:30 - 1:15 = 2", []),
        ("11 < 30 / 11 = 2", []),
        ("x = 5 and 3 = 4", []),
        ("5 * 3 = <<5*3=15>>15", []),
    ],
)
def test_equations_in_text_are_read_whole_or_not_at_all(text: str, wrong: list[str]) -> None:
    assert wrong_equations(text) == wrong


def test_annotations_are_read() -> None:
    assert wrong_annotations("3*4=<<3*4=12>>12 and 3*5=<<3*5=16>>16 <<broken") == ["3*5=16"]


@pytest.mark.parametrize(
    "piece",
    ["1 + ", "1 + 1 = ", "(", "(1 + ", "1", "1,111,", "=1", "1 = ", " ", "(1 = ", "= - ", "<<", "<<1="],
)
def test_no_text_makes_the_arithmetic_long(piece: str) -> None:
    assert severities(llm.arithmetic(inline=True), [f"a {piece * 20_000} = 1"]) is not None


# ---- format ------------------------------------------------------------------------------------------------


def test_the_last_line_is_what_counts() -> None:
    one = llm.final_line(r"A: -?[\d,]+")
    answers: list[str | None] = [
        "so\nA: 12",
        "A: 12 \n\n",
        "A: 12\nthen more",
        "B\nAA: 3",
        "A: 1\nA: x",
        "",
        None,
        "A: -1,200",
    ]
    assert severities(one, answers) == [0, 0, 1, 1, 1, 0, 0, 0]
    with pytest.raises(ValueError, match="RE2"):
        llm.final_line("(?=a)")


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "age"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$"},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 5},
        "tags": {"type": "array", "items": {"enum": ["x", "y", 1, None]}, "uniqueItems": True, "maxItems": 3},
        "more": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/leaf"}]},
        "one": {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
        "no": {"not": {"const": 0}},
        "all": {"allOf": [{"type": "number"}, {"maximum": 3}]},
    },
    "$defs": {"leaf": {"type": ["array", "boolean"], "items": {"$ref": "#/$defs/leaf"}}},
}


def random_value(rng: random.Random, depth: int = 3) -> Any:
    plain = [None, True, False, 0, 1, 2, 4.0, 2.5, -1, 7, "", "a", "abc", "abcdef", "A", "x", "y"]
    kind = rng.random()
    if depth and kind < 0.3:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(5))]
    return rng.choice(plain)


def test_json_schema_agrees_with_the_reference_implementation() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    reference, rng = jsonschema.Draft202012Validator(SCHEMA), random.Random(0)
    names = [*SCHEMA["properties"], "other"]
    verdicts = []
    for _ in range(2000):
        value = {
            name: random_value(rng) for name in names if rng.random() < (0.15 if name == "other" else 0.7)
        }
        if rng.random() < 0.7:  # mostly valid, so that one fault decides
            value |= {"name": "abc", "age": 3}
        valid = next(violations(value, SCHEMA), None) is None
        assert valid == reference.is_valid(value), value
        verdicts.append(valid)
    assert 20 < sum(verdicts) < 1980


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1', "no JSON"),
        ('Sure! {"a": 1}', "no JSON"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "$: object expected, got [1]"),
        ('{"a": "x"}', "$.a: integer expected"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    (said,) = json_problems(text, schema)
    assert problem in said


def test_a_fence_around_json_is_allowed_unless_refused() -> None:
    fenced = '```json\n{"a": 1}\n```\n'
    assert parse_json(fenced) == {"a": 1}
    assert severities(llm.json_schema(), [fenced, "no", "", None]) == [0.0, 1.0, 0.0, 0.0]
    assert severities(llm.json_schema(fenced=False), [fenced]) == [1.0]


@pytest.mark.parametrize(
    "schema", [{"type": "text"}, {"propertyNames": {}}, {"items": {"format": "x"}}, {"$ref": "http://x"}]
)
def test_schemas_beyond_the_subset_are_refused_at_once(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="#"):
        check_schema(schema)
    with pytest.raises(ValueError, match="#"):
        llm.json_schema(schema)


def test_a_value_that_refers_to_itself_without_end_is_refused() -> None:
    endless = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    with pytest.raises(ValueError, match="refers to itself"):
        llm.json_schema(endless)


def test_revisions_follow_the_settings() -> None:
    first, second = llm.ungrounded(), llm.ungrounded(below=0.4)
    assert first.revision == llm.ungrounded().revision != second.revision
    schemas = [{"type": "object"}, {"type": "array"}]
    assert len({llm.json_schema(schema).revision for schema in schemas}) == 2
    assert json.loads(json.dumps(list(groundedness.FEATURES))) == list(groundedness.FEATURES)
