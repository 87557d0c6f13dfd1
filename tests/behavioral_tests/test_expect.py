import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import MFT, expect


def answers(**outputs: object) -> Batch:
    rows = len(next(iter(outputs.values())))  # type: ignore[arg-type]  # test data are lists
    records = [{"outputs": {name: values[row] for name, values in outputs.items()}} for row in range(rows)]  # type: ignore[index]  # see above
    return Batch.from_records(records, model="m")


@pytest.mark.parametrize(
    ("expectation", "before", "after", "severities"),
    [
        (expect.same(), {"label": [1, 2]}, {"label": [1, 3]}, [0, 1]),
        (expect.same(), {"label": ["a", "b", None]}, {"label": ["a", "c", "b"]}, [0, 1, np.nan]),
        (expect.same("score"), {"score": [0.5]}, {"score": [0.75]}, [0.25]),
        (expect.same("score", tolerance=0.3), {"score": [0.5, 0.5]}, {"score": [0.75, 1.0]}, [0, 0.2]),
        (expect.same("score"), {"score": [0.5, None]}, {"score": [np.nan, 0.5]}, [1, np.nan]),
        (expect.same("score"), {"score": [np.inf, 1.0]}, {"score": [np.inf, np.inf]}, [0, 1]),
        (expect.same("score", tolerance=3), {"score": [0.5, 1]}, {"score": [None, 2]}, [1, 0]),
        (expect.same("label"), {"label": [1, 2, None]}, {"label": [None, 2, 1]}, [1, 0, np.nan]),
        (expect.same("probs"), {"probs": [[0.5, np.nan]]}, {"probs": [[0.5, 0.5]]}, [np.nan]),
        (expect.same("probs"), {"probs": [[0.5, 0.5]]}, {"probs": [[0.5, np.nan]]}, [1]),
        (expect.same("tags"), {"tags": [["a"], ["a"]]}, {"tags": [["a"], ["a", "b"]]}, [0, 1]),
        (
            expect.same("label", "score"),
            {"label": [None, 1], "score": [0.5, 0.5]},
            {"label": [1, 1], "score": [0.75, None]},
            [0.25, 1],
        ),
        (expect.same("probs"), {"probs": [[0.5, 0.5]]}, {"probs": [[0.25, 0.75]]}, [0.25]),
        (
            expect.same("label", "score"),
            {"label": [1], "score": [0.5]},
            {"label": [1], "score": [0.0]},
            [0.5],
        ),
        (expect.equal(to=3), {"label": [0, 0]}, {"label": [3, 2]}, [0, 1]),
        (expect.not_equal(to="b"), {"label": ["", ""]}, {"label": ["a", "b"]}, [0, 1]),
        (expect.changed(), {"label": [1, 2]}, {"label": [1, 3]}, [1, 0]),
        (expect.changed(), {"label": [1, None]}, {"label": [None, 3]}, [1, np.nan]),
        (expect.equal(to=3), {"label": [3]}, {"label": [None]}, [1]),
        (expect.not_equal(to="b"), {"label": [""]}, {"label": [None]}, [1]),
        (expect.in_set({1, None}), {"label": [1, 1]}, {"label": [None, 2]}, [0, 1]),
        (expect.in_set({1}), {"label": [1, 1]}, {"label": [None, 1]}, [1, 0]),
        (
            expect.invariant(scores="probs", tolerance=0.1),
            {"label": [0, 0, 0, None], "probs": [[0.5, 0.5], [0.5, 0.5], [0.9, 0.1], [0.5, 0.5]]},
            {"label": [1, None, 1, 1], "probs": [[0.45, 0.55], [0.5, 0.5], [0.1, 0.9], [0.4, 0.6]]},
            [0, 1, 0.7, np.nan],
        ),
        (
            expect.shift({"probs[1]": 1, "probs[0]": -1}, direction="increasing"),
            {"probs": [[0.5, 0.5], [0.5, 0.5], [0.5, np.nan]]},
            {"probs": [[0.25, 0.75], [0.75, np.nan], [0.5, 0.5]]},
            [0, 1, np.nan],
        ),
        (expect.in_set({"a", "b"}), {"label": ["a", "a"]}, {"label": ["b", "c"]}, [0, 1]),
        (expect.within("score", low=0, high=1), {"score": [0, 0, 0]}, {"score": [0.5, 1.5, -2]}, [0, 0.5, 2]),
        (expect.monotone("p", direction="increasing"), {"p": [1.0, 1.0]}, {"p": [2.0, 0.5]}, [0, 0.5]),
        (expect.monotone("p", direction="increasing"), {"p": [1.0, None]}, {"p": [None, 0.5]}, [1, np.nan]),
        (
            expect.monotone("p", direction="increasing", bounds=(0, 1), tolerance=0.1),
            {"p": [0.05, 0.05, 0.5]},
            {"p": [0.0, None, 0.0]},
            [np.nan, 1, 0.4],
        ),
        (expect.within("score", high=1), {"score": [0.0]}, {"score": [np.inf]}, [1]),
        (expect.monotone("p", direction="decreasing"), {"p": [1.0, 1.0]}, {"p": [2.0, 0.5]}, [1, 0]),
        (
            expect.monotone("probs[1]", direction="increasing", tolerance=0.25),
            {"probs": [[0.5, 0.5]]},
            {"probs": [[1.0, 0.0]]},
            [0.25],
        ),
    ],
)
def test_severities(
    expectation: expect.Expectation,
    before: dict[str, object],
    after: dict[str, object],
    severities: list[float],
) -> None:
    was, now = answers(**before), answers(**after)
    found = expect.severities(expectation(was, now), was.rows)
    np.testing.assert_allclose(found, severities, atol=1e-7)


def test_the_right_answer_is_the_label_of_the_case() -> None:
    cases = Batch.from_records([{"label": {"label": 1}}, {"label": {"label": 2}}, {"label": {}}], model="m")
    answered = cases.with_outputs({"label": np.array([1, 1, 1])})
    np.testing.assert_array_equal(expect.equal()(cases, answered), [0, 1, np.nan])
    np.testing.assert_array_equal(expect.not_equal()(cases, answered), [1, 0, np.nan])


def test_a_label_of_another_type_is_the_answer_it_equals() -> None:
    for given, label in ((True, 1), ("1", 1), (np.float32(0.1), 0.1), (1, "1.0")):
        cases = Batch.from_records([{"label": {"label": label}}], model="m")
        answered = cases.with_outputs({"label": np.array([given])})
        assert expect.equal()(cases, answered).tolist() == [0.0], (given, label)
        assert expect.not_equal()(cases, answered).tolist() == [1.0], (given, label)


def test_texts_and_numbers_are_never_silently_unequal() -> None:
    with pytest.raises(TypeError, match="they could never be equal"):
        expect.equal(to="one")(answers(label=[1]), answers(label=[1]))
    with pytest.raises(TypeError, match="they could never be equal"):
        expect.same()(answers(label=["1"]), answers(label=[1]))


def test_a_missing_output_names_what_there_is() -> None:
    with pytest.raises(KeyError, match=r"outputs\.score"):
        expect.same("label")(answers(score=[1.0]), answers(score=[1.0]))


@pytest.mark.parametrize("verdict", [np.array([1.0]), np.array([-1.0, 0.0]), True])
def test_a_verdict_of_another_shape_or_sign_is_refused(verdict: object) -> None:
    with pytest.raises(ValueError, match=r"one value per record|must be finite and >= 0"):
        expect.severities(np.asarray(verdict), 2)


def test_an_element_that_is_not_there_is_named() -> None:
    two = answers(probs=[[0.5, 0.5]], label=[2], text=["a"])
    with pytest.raises(ValueError, match=r"probs\[7\]: there are 2 elements, numbered from 0; got 7"):
        expect.within("probs[7]")(two, two)
    with pytest.raises(ValueError, match="there are 2 elements"):
        expect.same("probs[label]")(two, two)
    with pytest.raises(TypeError, match="class numbers expected in 'text'"):
        expect.same("probs[text]")(two, two)
    with pytest.raises(TypeError, match="a vector per row expected"):
        expect.same("text[0]")(two, two)
    with pytest.raises(TypeError, match="they could never be equal"):
        expect.in_set({"two"})(two, two)
    assert expect.in_set({"2"})(two, two).tolist() == [True]


def test_a_missing_value_never_fulfils_a_condition() -> None:
    asked = answers(label=[1, None, 2], score=[0.5, 0.5, None])
    for name, value in (("outputs.label", 1), ("outputs.score", 0.0)):
        for op in ("!=", ">=", "not in"):
            found = expect.within("label").where(name, op, value if op != "not in" else [7])(asked, asked)
            absent = asked.is_null(name)
            assert np.isnan(found[absent]).all()


@pytest.mark.parametrize(
    ("rule", "text", "severity"),
    [
        (expect.contains("opens", "nine"), "It opens at nine", 0),
        (expect.contains("opens", "ten"), "It opens at nine", 0.5),
        (expect.contains("OPENS", ignore_case=True), "It opens", 0),
        (expect.not_contains("sorry", "cannot", ignore_case=True), "Sorry, no", 0.5),
        (expect.not_contains("sorry"), "Sorry, no", 0),
        (expect.matches(r"^\d+ €$"), "12 €", 0),
        (expect.matches(r"^\d+ €$"), "12 euros", 1),
        (expect.valid_json(), "[1, 2]", 0),
        (expect.valid_json(), "[1, 2", 1),
        (expect.valid_json(), "[" * 100_000, 1),
        (expect.valid_json(keys=("a",)), "[1]", 1),
        (expect.valid_json(keys=("a",)), '{"a": null}', 0),
        (expect.length(low=3, high=5), "1234567", 2),
        (expect.length(low=3), "", 3),
        (expect.length(low=1, high=2, unit="words"), "one two three", 1),
        (expect.contains("a"), None, 1),
        (expect.not_contains("a"), None, 1),
        (expect.matches("a"), None, 1),
        (expect.valid_json(), None, 1),
        (expect.length(), None, 1),
    ],
)
def test_texts(rule: expect.Rule, text: str | None, severity: float) -> None:
    answered = answers(answer=[text, "a"])
    assert rule(answered, answered)[0] == pytest.approx(severity)


def test_words_of_texts_without_spaces_are_compared_by_their_letters() -> None:
    was, now = answers(answer=["退款三十天内到账"]), answers(answer=["退款九十天内到账"])
    np.testing.assert_allclose(expect.similar(at_least=0.9)(was, now), [0.9 - 5 / 7])
    assert expect.length(low=7, high=7, unit="words")(was, was)[0] == 0.0


def test_similar_texts() -> None:
    was = answers(answer=["it opens at nine", "it opens at nine", "yes", "", None, "yes"])
    now = answers(answer=["At nine, it opens!", "it opens at ten", "no", "", "yes", None])
    words = expect.similar(at_least=0.9)(was, now)
    np.testing.assert_allclose(words, [0, 0.9 - 0.75, 0.9, 0, np.nan, 1])
    letters = expect.similar(at_least=1.0, by="characters")(was, now)
    assert letters[1] == pytest.approx(1 - 26 / 31)
    assert letters[3] == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: expect.contains(), "at least one text"),
        (lambda: expect.not_contains("a", ""), "not empty"),
        (lambda: expect.matches("("), "regular expression expected"),
        (lambda: expect.similar(at_least=1.5), "share in"),
        (lambda: expect.length(low=5, high=3), "low <= high"),
        (lambda: expect.spread(at_most=-1), "at_most"),
        (lambda: expect.ordered(direction="up"), "direction must be"),  # type: ignore[arg-type]  # what is tested
    ],
)
def test_arguments_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_an_answer_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="texts expected in 'answer', got 3"):
        expect.contains("a")(answers(answer=[3]), answers(answer=[3]))


@pytest.mark.parametrize(
    ("rule", "values", "severities"),
    [
        (expect.agree("x"), [[1, 1, 1], [1, 2], [1], [1, 2, 2, 1]], [0, 1, 0, 2 / 3]),
        (expect.agree("x"), [["a", None], [None, "a"], ["a", "a"]], [1, np.nan, 0]),
        (expect.spread("x", at_most=0.5), [[1.0, 1.25], [0.0, 2.0, 1.0], [3.0]], [0, 1.5, 0]),
        (expect.spread("x", at_most=0.5), [[1.0, None], [None, 1.0]], [1, np.nan]),
        (expect.ordered("x", direction="increasing"), [[1, 2, 2], [3, 1, 2], [0]], [0, 2, 0]),
        (expect.ordered("x", direction="decreasing", tolerance=1), [[1.0, 2.0], [1.0, 4.0, 3.0]], [0, 2]),
        (expect.ordered("x", direction="increasing"), [[9.0, None], [None, 1.0], [1.0, 2.0]], [1, np.nan, 0]),
    ],
)
def test_rules_of_cases(rule: expect.Rule, values: list[list[object]], severities: list[float]) -> None:
    examples = answers(x=[value for group in values for value in group])
    case = np.repeat(np.arange(len(values)), [len(group) for group in values])
    np.testing.assert_allclose(rule(examples, case), severities)


def test_a_rule_of_cases_in_a_test() -> None:
    longer = MFT(
        name="test_x",
        cases=[["good", "very good"], ["bad!", "bad"]],
        expect=expect.ordered("score", direction="increasing"),
    )
    outcome = longer.run(
        lambda batch: {"score": np.array([len(t) for t in batch.column("inputs.text")]) * 1.0}
    )
    assert (outcome.cases, outcome.failures, outcome.examples[0].case) == (2, 1, 1)


@pytest.mark.parametrize(
    ("op", "value", "said"),
    [("in", {"b", "a"}, ["a", "b"]), ("in", ("a", "b"), ["a", "b"]), (">", np.float32(2), 2.0)],
)
def test_a_condition_is_data_where_its_value_can_be(op: Any, value: object, said: object) -> None:
    told = expect.spec_of(expect.same().where("attrs.x", op, value))
    assert json.loads(json.dumps(told))["where"]["value"] == said


def test_a_condition_that_is_no_data_makes_the_rule_code() -> None:
    assert expect.spec_of(expect.same().where("inputs.seen", ">", np.datetime64("2020-01-01"))) == {}
