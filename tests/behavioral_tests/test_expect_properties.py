"""What must hold of every expectation, whatever the answers."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests import DIR, INV, expect
from outrider.behavioral_tests.examples import Examples
from outrider.behavioral_tests.expect.rule import _FACTORIES, all_of, any_of
from outrider.behavioral_tests.judging import Aggregate, judge

SEVERITY = st.sampled_from([0.0, 0.25, 1.0, 2.0, math.nan])

FACTORIES: dict[str, list[Callable[[], expect.Rule]]] = {
    "agree": [lambda: expect.agree(), lambda: expect.agree("score")],
    "changed": [lambda: expect.changed(), lambda: expect.changed("answer")],
    "contains": [lambda: expect.contains("a", "b", ignore_case=True)],
    "equal": [lambda: expect.equal(), lambda: expect.equal("label", to=2)],
    "group_gap": [lambda: expect.group_gap("selection_rate", by="inputs.sex", at_most=0.1)],
    "in_set": [lambda: expect.in_set({2, 1}), lambda: expect.in_set(["b"], field="answer")],
    "invariant": [lambda: expect.invariant(scores="probs", tolerance=0.1)],
    "length": [lambda: expect.length(low=1, high=9, unit="words")],
    "matches": [lambda: expect.matches(r"\d+")],
    "monotone": [
        lambda: expect.monotone("score", direction="increasing", tolerance=0.1, bounds=(0, 1)),
        lambda: expect.monotone("probs[label]", direction="decreasing"),
    ],
    "not_contains": [lambda: expect.not_contains("a")],
    "not_equal": [lambda: expect.not_equal(), lambda: expect.not_equal(to=3)],
    "ordered": [lambda: expect.ordered("score", direction="decreasing", tolerance=0.1)],
    "same": [lambda: expect.same(), lambda: expect.same("label", "score", tolerance=0.25)],
    "shift": [lambda: expect.shift({"probs[1]": 1, "probs[0]": -1}, direction="increasing")],
    "similar": [lambda: expect.similar(at_least=0.5), lambda: expect.similar(at_least=0.5, by="characters")],
    "spread": [lambda: expect.spread("score", at_most=0.25)],
    "valid_json": [lambda: expect.valid_json(keys=("a", "b"))],
    "within": [lambda: expect.within("score", low=0.0), lambda: expect.within("probs[0]", high=1)],
}
MADE = [make for makers in FACTORIES.values() for make in makers]


def test_every_factory_is_tried_here() -> None:
    assert sorted(FACTORIES) == sorted(_FACTORIES)


def examples(rows: int, seed: int) -> Batch:
    """Answered cases with something missing in every column."""
    rng = np.random.default_rng(seed)

    def holes(values: Sequence[Any]) -> list[Any]:
        kept = rng.random(len(values)) >= 0.15
        kept[0] = True  # a column without any value has no type
        return [value if keep else None for value, keep in zip(values, kept, strict=True)]

    columns: dict[str, Sequence[Any]] = {
        "outputs.label": holes(rng.integers(0, 2, rows).tolist()),
        "outputs.score": holes(rng.random(rows).round(1).tolist()),
        "outputs.probs": [[p, 1 - p] for p in rng.random(rows).round(1).tolist()],
        "outputs.answer": holes(rng.choice(["a b", "12", '{"a": 1, "b": 2}', "", "A"], rows).tolist()),
        "label.label": holes(rng.integers(0, 3, rows).tolist()),
        "inputs.sex": rng.choice(["m", "f"], rows).tolist(),
    }
    return Batch.from_columns(columns, model="m")


def judged(rule: expect.Rule, before: Batch, after: Batch) -> Any:
    match rule.scope:
        case "row":
            return expect.severities(rule(before, after), before.rows).tolist()
        case "case":
            return expect.severities(rule(after, np.arange(after.rows) // 2), (after.rows + 1) // 2).tolist()
        case _:
            return rule(after).severity


@pytest.mark.parametrize("make", MADE)
def test_a_rule_written_as_json_judges_the_same(make: Callable[[], expect.Rule]) -> None:
    rule = make()
    spec = json.loads(json.dumps(expect.spec_of(rule), allow_nan=False))
    assert spec
    again = expect.from_spec(spec)
    assert expect.spec_of(again) == expect.spec_of(rule)
    assert again.scope == rule.scope
    for seed in range(5):
        before, after = examples(40, seed), examples(40, seed + 50)
        np.testing.assert_array_equal(judged(again, before, after), judged(rule, before, after))


ROWS = [make for make in MADE if make().scope == "row"]


@given(st.lists(st.sampled_from(ROWS), min_size=1, max_size=4), st.integers(0, 2**16), st.data())
def test_combined_rules_written_as_json_judge_the_same(
    makers: list[Callable[[], expect.Rule]], seed: int, data: st.DataObject
) -> None:
    rule = makers[0]()
    for make in makers[1:]:
        match data.draw(st.sampled_from(["and", "or", "where"])):
            case "and":
                rule = rule & make()
            case "or":
                rule = rule | make()
            case _:
                rule = make().where("inputs.sex", "==", "f") & rule
    again = expect.from_spec(json.loads(json.dumps(expect.spec_of(rule))))
    before, after = examples(20, seed), examples(20, seed + 1)
    np.testing.assert_array_equal(judged(again, before, after), judged(rule, before, after))


@given(st.lists(st.lists(SEVERITY, min_size=3, max_size=3), min_size=1, max_size=20))
def test_and_and_or_are_a_loop_that_drops_what_is_not_applicable(rows: list[list[float]]) -> None:
    table = np.array(rows)
    batch = Batch.from_columns({"inputs.x": np.arange(len(rows))}, model="m")
    rules = [expect.Rule(lambda before, after, at=at: table[:, at]) for at in range(3)]
    for combine, pick in ((all_of, max), (any_of, min)):
        expected = [pick(kept) if (kept := [v for v in row if v == v]) else math.nan for row in rows]
        np.testing.assert_array_equal(combine(*rules)(batch, batch), expected)
    one, two, three = rules
    for left, right in (
        ((one & two) & three, one & (two & three)),
        ((one | two) | three, one | (two | three)),
        (one & two, two & one),
        (one | one, one),
        (one & one, one),
    ):
        np.testing.assert_array_equal(left(batch, batch), right(batch, batch))


AGGREGATES: dict[str, tuple[Aggregate, Callable[[list[float]], float]]] = {
    "all": ("all", max),
    "any": ("any", min),
    "mean": ("mean", lambda kept: sum(kept) / len(kept)),
    "function": (lambda kept: float(np.median(kept)), lambda kept: float(np.median(kept))),
}


@pytest.mark.parametrize("name", AGGREGATES)
@given(
    cases=st.lists(st.lists(SEVERITY, min_size=1, max_size=5), min_size=1, max_size=8),
    seed=st.integers(0, 99),
)
def test_aggregation_is_a_loop_that_drops_what_is_not_applicable(
    name: str, cases: list[list[float]], seed: int
) -> None:
    aggregate, by_hand = AGGREGATES[name]
    flat = np.array([value for values in cases for value in values])
    case = np.repeat(np.arange(len(cases)), [len(values) for values in cases])
    order = np.random.default_rng(seed).permutation(len(flat))  # rows of a case need not stand together
    batch = Batch.from_columns({"inputs.x": flat[order]}, model="m")
    rule = expect.Rule(lambda before, after: flat[order])
    found = judge(Examples(batch, case[order], len(cases)), rule, aggregate)
    expected = [by_hand(kept) if (kept := [v for v in values if v == v]) else math.nan for values in cases]
    np.testing.assert_allclose(found.severity, expected)
    for number, values in enumerate(cases):
        kept = [value for value in values if value == value]
        if kept and max(kept) > 0:  # the row to show is one that was violated most
            assert flat[order][found.worst[number]] == max(kept)
        else:
            assert found.worst[number] == -1


@pytest.mark.parametrize("make", ROWS)
def test_a_rule_looks_at_outputs_and_labels_and_what_its_condition_names(
    make: Callable[[], expect.Rule],
) -> None:
    """So that nothing else need be copied for it."""
    for rule in (make(), make().where("inputs.sex", "==", "f")):
        batch = examples(40, 3)
        pairs = Examples(batch, np.arange(40) // 2, 20, np.arange(0, 40, 2))
        was, now = batch.take(np.arange(0, 40, 2)), batch.take(np.arange(1, 40, 2))
        np.testing.assert_array_equal(judge(pairs, rule).severity, judged(rule, was, now))


UNCHANGED = [
    *FACTORIES["same"], *FACTORIES["invariant"], *FACTORIES["monotone"], *FACTORIES["shift"],
    *FACTORIES["similar"], *FACTORIES["agree"], *FACTORIES["spread"], *FACTORIES["ordered"],
]  # fmt: skip


@pytest.mark.parametrize("make", UNCHANGED)
@given(seed=st.integers(0, 2**16))
def test_an_input_that_did_not_change_never_fails(make: Callable[[], expect.Rule], seed: int) -> None:
    source = examples(30, seed)
    cases = [[{"row": row}, {"row": row}] for row in range(30)]

    def predict(batch: Batch) -> Mapping[str, NDArray[Any]]:
        asked = source.take(batch.column("inputs.row"))
        return {
            name: asked.tensor(f"outputs.{name}") if name == "probs" else _objects(asked, name)
            for name in ("label", "score", "probs", "answer")
        }

    for kind in (INV, DIR):
        outcome = kind(name="test_x", cases=cases, expect=make()).run(predict)
        assert outcome.failures == 0
        assert outcome.cases + outcome.not_applicable == 30


def _objects(batch: Batch, name: str) -> NDArray[Any]:
    return np.array(batch.arrow(f"outputs.{name}").to_pylist(), dtype=object)


def test_a_perturbation_that_changes_nothing_makes_no_case() -> None:
    identity = INV(name="test_x", cases=["a", "b"], perturb=lambda batch, rng: batch)
    outcome = identity.run(lambda batch: {"label": np.zeros(batch.rows)})
    assert (outcome.status, outcome.not_applicable) == ("skipped", 2)
