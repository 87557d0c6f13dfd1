"""Suite files: strict reading, stable writing, and what they say runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests import MFT, load_suite
from outrider.behavioral_tests.suite_file import (
    CaseSource,
    WrittenCase,
    WrittenSuite,
    WrittenTest,
    export,
    parse,
    runnable,
    to_bytes,
    write,
)
from outrider.errors import ConfigError


def small(**changes: Any) -> dict[str, Any]:
    test = {"name": "t", "kind": "MFT", "cases": [{"id": "a", "inputs": ["good"], "label": 1}]} | changes
    return {"outrider_suite": 1, "name": "s", "tests": [test]}


def batch_of(document: dict[str, Any]) -> Batch:
    (test,) = runnable(parse(json.dumps(document).encode(), "s.suite.json"), file="s.suite.json")
    return test.examples().batch


def has_good(batch: Batch) -> dict[str, NDArray[Any]]:
    return {"label": np.array(["good" in text for text in batch.column("inputs.text")], dtype=int)}


def test_a_file_runs_as_a_suite(tmp_path: Path) -> None:
    cases = [{"inputs": ["good"], "label": 1}, {"inputs": ["not good"], "label": 0}]
    pair = {"name": "p", "kind": "INV", "cases": [{"id": "x", "inputs": ["good", "GOOD", "goood"]}]}
    document = small(cases=cases)
    document["tests"].append(pair)
    path = tmp_path / "mood.suite.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    suite = load_suite(path)
    assert [test.suite for test in suite.tests] == ["s", "s"]
    mft, inv = suite.run(has_good)
    assert (mft.failures, mft.cases) == (1, 2)
    assert (inv.failures, inv.cases, inv.asked) == (1, 1, 3)
    assert inv.examples[0].original_inputs == {"text": "good"}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"tests": []}, '"outrider_suite": 1 expected; without it'),
        ({"outrider_suite": 2, "new": 1}, "1 expected, got 2; a newer Outrider"),
        (small(extra=1), "test 't': Object contains unknown field `extra`"),
        (small(kind="mft"), "test 't', kind: Invalid enum value 'mft'"),
        (small(tolerance=2), "test 't', tolerance: Expected `float` <= 1.0, got '2'"),
        (small(confidence=1), "test 't', confidence: Expected `float` < 1.0, got '1'"),
        (
            small(stop="decided", expect={"expect": "group_gap", "by": "text", "at_most": 0.1}),
            "test 't': stop='decided' needs an expectation of rows or cases",
        ),
        (small(cases=[]), "test 't': at least one case expected, got none"),
        (small(cases=[{"id": "a", "inputs": []}]), "test 't', case 'a', inputs: .*length >= 1"),
        (small(cases=[{"id": "a", "inputs": "x"}]), "case 'a', inputs: Expected `array`, got `str`, got 'x'"),
        (small(cases=[{"id": "a", "inputs": [1]}]), r"case 'a', inputs\[0\]: Expected `str \| object`"),
        (small(cases=[{"inputs": ["x"], "lable": 1}]), "test 't', case '0': .*unknown field `lable`"),
        (small(cases=[{"id": "a"}]), "test 't', case 'a': .*missing required field `inputs`"),
        (small(cases=[{"id": "a", "inputs": ["x"]}] * 2), "test 't': two cases have the id 'a'"),
        (small(aggregate="most"), "test 't', aggregate: Invalid enum value 'most'"),
        (small(expect={"expect": "exec"}), "test 't', expect: expect must be one of"),
        (small(expect={"expect": "equal", "too": 1}), "test 't', expect: equal has no parameter 'too'"),
        (small(expect={"all_of": 3}), "test 't', expect: "),
        (small(expect={"where": "x", "then": {}}), "test 't', expect: "),
        (small(kind="DIR"), "a DIR needs 'expect'"),
        (
            small(cases=[{"id": "a", "inputs": [{"age": 1}]}, {"id": "b", "inputs": [{"age": "old"}]}]),
            "test 't': inputs.age: case 'b': one type expected, that of '1', got 'old'",
        ),
        (small(cases=[{"id": "a", "inputs": [{"age": 10**30}]}]), "inputs.age: case 'a'"),
        (
            small(cases=[{"inputs": [{"box": [1.0, 2.0]}]}, {"inputs": [{"box": [1.0, 1e300]}]}]),
            "inputs.box: case '1': .*overflow",
        ),
        (
            small(types={"inputs.text": {"dtype": "object", "shape": [1]}}),
            "dtype: Invalid enum value 'object'",
        ),
        *(
            (
                small(
                    cases=[{"id": "a", "inputs": [{"x": value}]}],
                    types={"inputs.x": {"dtype": "uint8", "shape": shape}},
                ),
                f"inputs.x: case 'a': uint8 of shape .*{reason}",
            )
            for value, shape, reason in [
                ([300], [1], "a number that uint8 cannot hold"),
                ([1.5], [1], "a number that uint8 cannot hold"),
                ([1, 2], [1], "shape"),
                ([1], [10**9, 10**9], "shape"),
                (["a"], [1], "numbers expected"),
                (None, [10**9, 10**9], "no tensor"),
            ]
        ),
        (small(types={"inputs.text": "int8"}), "inputs.text: case 'a': int8 expected, got 'good'"),
        (small(types={"inputs.age": "int8"}), r"types\['inputs.age'\]: one of id, inputs.text, label.label"),
        (small(types={"inputs.text": "pickle"}), "pickle expected"),
    ],
)
def test_what_is_wrong_is_named_with_test_case_and_field(document: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        batch_of(document)
    assert str(error.value).startswith("s.suite.json")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not JSON"),
        (b"\x80\x04K\x01.", "is not JSON"),
        (b'{"outrider_suite": 1, "name": "s", "tests": [' + b"[" * 200_000, "nested too deeply"),
        (b'{"outrider_suite": 1, "name": "s", "tests": [{"name": NaN}]}', "is not JSON"),
        (
            b'{"outrider_suite": 1, "name": "s", "tests": [{"name": 1e9999}]}',
            r"out of range - at `\$.tests\[0\].name`",
        ),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"outrider_suite": 1, "name": "\xff", "tests": []}', "is not JSON"),
    ],
)
def test_hostile_files_are_refused_in_one_sentence(content: bytes, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        parse(content, "s.suite.json")
    assert len(str(error.value)) < 300


def test_two_tests_of_one_name_are_refused() -> None:
    document = small()
    document["tests"] *= 2
    with pytest.raises(ConfigError, match="two tests are called 't'"):
        batch_of(document)


def test_values_become_columns_of_the_types_that_are_said() -> None:
    image = [[0, 1], [254, 255]]
    cases = [
        {"inputs": [{"image": image, "age": 1}], "attrs": {"city": "Oslo"}},
        {"inputs": [{"image": image}], "label": {"score": 0.5}},
    ]
    types = {"inputs.image": {"dtype": "uint8", "shape": [2, 2]}, "inputs.age": "int16"}
    batch = batch_of(small(cases=cases, types=types, labels=7))
    assert batch.tensor("inputs.image").dtype == np.uint8
    assert batch.tensor("inputs.image")[1].tolist() == image
    assert batch.arrow("inputs.age").type == pa.int16()
    assert batch.is_null("inputs.age").tolist() == [False, True]
    assert batch.column("attrs.city").tolist() == ["Oslo", None]
    assert batch.arrow("label.label").to_pylist() == [7, None]
    assert batch.arrow("label.score").to_pylist() == [None, 0.5]


def test_candidates_are_counted_but_not_run(tmp_path: Path) -> None:
    cases = [{"inputs": ["good"], "label": 1}, {"inputs": ["bad"], "label": 1, "reviewed": False}]
    document = small(cases=cases)
    document["tests"].append(small(name="only", cases=cases[1:])["tests"][0])
    (tmp_path / "x.suite.json").write_text(json.dumps(document), encoding="utf-8")
    suite = load_suite(tmp_path / "x.suite.json")
    assert suite.candidates == 2
    assert [test.name for test in suite.tests] == ["t"]
    assert suite.run(has_good)[0].cases == 1


def test_a_file_has_one_line_per_case_and_is_replaced_whole(tmp_path: Path) -> None:
    cases = [WrittenCase(id=str(number), inputs=["naïve \u2028 text\n"]) for number in range(3)]
    suite = WrittenSuite(
        outrider_suite=1, name="s", notice="MIT", tests=[WrittenTest(name="t", kind="MFT", cases=cases)]
    )
    path = tmp_path / "deep" / "x.suite.json"
    write(suite, path)
    lines = path.read_bytes().split(b"\n")
    assert sum(b'"inputs"' in line for line in lines) == 3
    assert parse(path.read_bytes(), "x") == suite
    path.chmod(0o640)
    write(suite, path)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in path.parent.iterdir()] == ["x.suite.json"]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = TEXT.filter(bool)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CASES = st.builds(
    WrittenCase,
    id=NAMES,
    inputs=st.lists(TEXT | st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=3),
    label=VALUES,
    attrs=st.dictionaries(NAMES, VALUES, max_size=2),
    source=st.none() | st.builds(CaseSource, model=TEXT, record_id=TEXT, by=TEXT),
    reviewed=st.booleans(),
)
WRITTEN = st.builds(
    WrittenTest,
    name=NAMES,
    kind=st.sampled_from(["MFT", "INV", "DIR"]),
    capability=NAMES,
    description=TEXT,
    tolerance=st.floats(0, 1),
    expect=st.none() | st.dictionaries(TEXT, VALUES, max_size=2),
    cases=st.lists(CASES, min_size=1, max_size=3, unique_by=lambda case: case.id),
)


@given(st.lists(WRITTEN, max_size=3, unique_by=lambda test: test.name), TEXT)
def test_what_is_written_is_read_again(tests: list[WrittenTest], notice: str) -> None:
    suite = WrittenSuite(outrider_suite=1, name="s", notice=notice, tests=tests)
    content = to_bytes(suite)
    assert parse(content, "x") == suite
    assert to_bytes(parse(content, "x")) == content
    json.loads(content)


@given(st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with pytest.raises(ConfigError):
        parse(content, "x")


def test_numbers_of_a_case_keep_their_revision_apart() -> None:
    one, other = (
        runnable(parse(json.dumps(small(tolerance=rate)).encode(), "x"), file="x")[0] for rate in (0.0, 0.1)
    )
    assert isinstance(one, MFT)
    assert one.revision != other.revision
    assert len(one.revision) == 12


def five(batch: Batch) -> dict[str, NDArray[Any]]:
    return {"label": np.array([int(text) for text in batch.column("inputs.text")])}


@pytest.mark.parametrize(
    ("kind", "expect", "aggregate", "failed", "judged"),
    [
        ("MFT", {"pairwise": {"expect": "same"}}, "all", [0, 2], 4),
        ("MFT", {"expect": "equal", "to": 1}, "all_except_first", [2], 4),
        ("INV", {"expect": "same"}, "all", [0, 2], 3),
        ("INV", {"pairwise": {"expect": "changed"}}, "all", [0, 1, 2, 3], 4),
        ("INV", {"pairwise": {"expect": "changed"}}, "all_except_first", [1], 4),
        ("INV", {"single": {"expect": "equal", "to": 1}}, "all_except_first", [2], 3),
        (
            "DIR",
            {
                "pairwise": {
                    "where": {"field": "outputs.label", "op": "==", "value": 1},
                    "then": {"expect": "same"},
                }
            },
            "all_except_first",
            [2],
            2,
        ),
    ],
)
def test_pairs_are_judged_as_by_checklist(
    kind: str, expect: dict[str, Any], aggregate: str, failed: list[int], judged: int
) -> None:
    cases = [{"inputs": each} for each in (["0", "1"], ["1", "1"], ["1", "0"], ["0"])]
    document = small(kind=kind, expect=expect, aggregate=aggregate, cases=cases)
    (test,) = runnable(parse(json.dumps(document).encode(), "x"), file="x")
    outcome = test.run(five)
    assert outcome.ran is not None
    assert (outcome.ran.failed.tolist(), outcome.cases) == (failed, judged)


def test_examples_of_a_case_may_have_labels_of_their_own() -> None:
    cases = [{"inputs": ["0", "1", "1"], "labels": [0, 1, None]}, {"inputs": ["0", "0"], "labels": [0, 1]}]
    document = small(cases=[*cases, {"inputs": ["1"], "label": 1}])
    (test,) = runnable(parse(json.dumps(document).encode(), "x"), file="x")
    outcome = test.run(five)
    assert outcome.ran is not None
    assert outcome.ran.failed.tolist() == [1]
    assert outcome.ran.severity.tolist() == [0.0, 1.0, 0.0]
    assert isinstance(test, MFT)
    written = export("s", [test]).tests[0].cases
    assert [(case.label, case.labels) for case in written] == [
        (UNSET, [0, 1, None]),
        (UNSET, [0, 1]),
        (1, UNSET),
    ]


@pytest.mark.parametrize("case", [{"labels": [1]}, {"labels": [1, 0], "label": 1}])
def test_labels_that_do_not_fit_are_named(case: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match="labels: case 'a': either label, or labels with one for each of its 2"
    ):
        batch_of(small(cases=[{"id": "a", "inputs": ["x", "y"]} | case]))
