"""CheckList's sentiment suite gives the counts and failing cases of CheckList's own code."""

import ast
import gzip
import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.behavioral_tests import Outcome, load_suite
from outrider.behavioral_tests.prediction_files import read_predictions, write_examples
from outrider.behavioral_tests.predictions import asked_by, recorded
from outrider.behavioral_tests.suite_file import write
from outrider.behavioral_tests.suite_file.checklist import CONVERTER, read_checklist
from outrider.errors import ConfigError
from tests.requirements import require_data


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checklist") / "sentiment.suite.json"
    write(read_checklist(require_data("checklist") / "sentiment_suite.jsonl.gz", released=True)[0], path)
    return path


def figures(outcome: Outcome) -> dict[str, Any]:
    assert outcome.ran is not None
    examples = outcome.ran.examples
    keys = examples.batch.keys if examples.original is None else examples.batch.keys[examples.original]
    failed = sorted(int(key) for key in keys[outcome.ran.failed])
    return {
        "name": outcome.name,
        "type": outcome.kind,
        "run": outcome.cases + outcome.not_applicable,
        "filtered": outcome.not_applicable,
        "fails": outcome.failures,
        "fail_rate": round(100 * outcome.rate, 4),
        "fail_idx_sha1": hashlib.sha1(",".join(map(str, failed)).encode()).hexdigest()[:12],
    }


@pytest.mark.parametrize("model", ["toy_lexicon", "toy_charhash"])
def test_every_test_fails_on_the_cases_of_checklist(released: Path, model: str) -> None:
    folder = require_data("checklist")
    suite = load_suite(released)
    answers = read_predictions(folder / f"sentiment_predictions_{model}.txt.gz")
    outcomes = suite.run(recorded([suite], answers))
    golden = json.loads((folder / f"sentiment_golden_{model}.json").read_text(encoding="utf-8"))["tests"]
    assert len(golden) == 38
    assert sum(test["fails"] for test in golden) > 100
    assert [figures(outcome) for outcome in outcomes] == golden


def test_the_whole_suite_is_imported_with_its_notice(tmp_path: Path) -> None:
    written, left_out = read_checklist(require_data("checklist") / "sentiment_suite.jsonl.gz")
    assert not left_out
    assert sum(len(case.inputs) for test in written.tests for case in test.cases) == 178_578
    assert "MIT License" in written.notice
    assert "Copyright (c) 2020 Marco Tulio Correia Ribeiro" in written.notice
    write(written, tmp_path / "all.suite.json")
    suite = load_suite(tmp_path / "all.suite.json")
    assert len(suite.tests) == 38
    assert sum(batch.rows for _, _, batch in asked_by([suite])) == 178_578
    assert suite.tests[19].name == '"used to" should reduce'


def test_examples_are_written_line_for_line_as_checklist_wants_them_predicted(
    released: Path, tmp_path: Path
) -> None:
    rows = write_examples(asked_by([load_suite(released)]), tmp_path / "examples.txt")
    assert rows == 87_470
    lines = (tmp_path / "examples.txt").read_text(encoding="utf-8").split("\n")
    assert len(lines) == rows + 1  # the last is empty
    written, _ = read_checklist(require_data("checklist") / "sentiment_suite.jsonl.gz", released=True)
    asked = [text for test in written.tests for case in test.cases for text in case.inputs]
    assert lines[:-1] == [" ".join(str(text).splitlines()) for text in asked]


def line(**changes: Any) -> str:
    test = {
        "suite": "small",
        "name": "t",
        "type": "MFT",
        "capability": "c",
        "expectation": {"kind": "eq", "scope": "single", "params": {"value": "label"}},
        "aggregate": "all",
        "cases": [{"inputs": ["a"], "label": 1}],
    }
    return json.dumps(test | changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"type": "XYZ"}, "Invalid enum value 'XYZ'"),
        ({"expectation": {"kind": "magic", "scope": "single", "params": {}}}, "'magic'"),
        ({"expectation": {"kind": "not_equal", "scope": "single", "params": {}}}, "'value'"),
        ({"expectation": {"kind": "inv", "scope": "single", "params": {"tolerance": 0.1}}}, "compares pairs"),
        (
            {"expectation": {"kind": "inv", "scope": "both", "params": {"tolerance": 0.1}}},
            "Invalid enum value",
        ),
        ({"expectation": {"kind": "rule", "params": {"expect": "exec"}}}, "expect must be one of"),
        ({"expectation": {"kind": "rule", "params": {"expect": "within", "low": "x"}}}, "within, low"),
        ({"expectation": {"kind": "combine_and", "of": []}}, "two expectations"),
        ({"cases": [{"inputs": "a"}]}, r"Expected `array`, got `str` - at `\$.cases\[0\].inputs`"),
        ({"cases": [{"inputs": [3]}]}, "got `int`"),
        ({"cases": [{"inputs": []}]}, "at least one example"),
        ({"cases": []}, "at least one case"),
        ({"cases": [{"inputs": ["a"]}]}, "compares with a label and it has none"),
        ({"cases": [{"inputs": ["a"], "lable": 1}]}, "unknown field `lable`"),
        ({"cases": [{"inputs": ["a"], "labels": [1, 2]}]}, "one label per example expected, 1, got 2"),
        ({"labels": [1, 2]}, "one label per case expected, 1, got 2"),
        (
            {"cases": [{"inputs": [["a", "b"]], "label": 1}], "fields": ["q"]},
            "2 texts in an example, 1 names",
        ),
        ({"aggregate": "most"}, "Invalid enum value 'most'"),
    ],
)
def test_what_is_not_understood_is_named_with_its_line(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f"{line()}\n{line(**changes)}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"x\.jsonl, line 2: .*{told}"):
        read_checklist(path)
    path.write_text(f"{line()}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no released sample"):
        read_checklist(path, released=True)


CONVERTED = Path(__file__).parent / "checklist_files"
"""Suites and answers that CheckList's own classes made (``make.py``), with what it found."""
GOLDEN = json.loads((CONVERTED / "golden.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("answers", sorted(GOLDEN))
def test_suites_of_checklists_own_classes_fail_on_its_cases(answers: str, tmp_path: Path) -> None:
    name = answers.split(".")[0]
    written, _ = read_checklist(CONVERTED / f"{name}.jsonl", released=name == "sampled")
    write(written, tmp_path / "made.suite.json")
    suite = load_suite(tmp_path / "made.suite.json")
    outcomes = suite.run(recorded([suite], read_predictions(CONVERTED / answers)))
    assert {outcome.name for outcome in outcomes} == set(GOLDEN[answers])
    for outcome in outcomes:
        golden = GOLDEN[answers][outcome.name]
        if "raises" in golden:
            assert outcome.status == "error", outcome.name
            continue
        assert outcome.ran is not None, outcome.message
        severity = outcome.ran.severity
        found = {
            "run": len(severity) + outcome.ran.examples.skipped,
            "failed": np.flatnonzero(severity > 0).tolist(),
            "filtered": np.flatnonzero(np.isnan(severity)).tolist(),
        }
        assert found == golden, outcome.name
    assert sum(len(golden.get("failed", ())) for golden in GOLDEN[answers].values()) > 30


def test_the_guide_counts_what_was_compared() -> None:
    told = [golden for tests in GOLDEN.values() for golden in tests.values()]
    ran = [golden for golden in told if "run" in golden]
    cases, failed, filtered = (
        sum(golden["run"] for golden in ran),
        sum(len(golden["failed"]) for golden in ran),
        sum(len(golden["filtered"]) for golden in ran),
    )
    guide = " ".join((Path(__file__).parents[2] / "docs" / "suites.md").read_text(encoding="utf-8").split())
    assert (
        f"{len(told)} runs of a test with {cases:,} cases, of which {failed:,} fail and {filtered}" in guide
    )
    assert len(told) - len(ran) == 3


def test_what_cannot_be_carried_is_listed_by_test() -> None:
    written, left_out = read_checklist(CONVERTED / "pairs.jsonl")
    lines = [json.loads(line) for line in (CONVERTED / "pairs.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines if line["name"] not in left_out] == [t.name for t in written.tests]
    assert left_out["own code over cases"] == "Expect.testcase of <lambda>(): a function over whole cases"
    assert left_out["sliced by each"].startswith("a slice of several examples")
    assert len(left_out) == 12


def test_pairs_of_texts_become_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(line(cases=[{"inputs": [["a", "b"]], "label": 1}]), encoding="utf-8")
    for fields, names in (((), ("text1", "text2")), (("context", "question"),) * 2):
        (test,) = read_checklist(path, fields=fields)[0].tests
        assert test.cases[0].inputs == [dict(zip(names, "ab", strict=True))]
    (test, *_) = read_checklist(CONVERTED / "pairs.jsonl")[0].tests
    assert isinstance(test.cases[0].inputs[0], dict)
    assert set(test.cases[0].inputs[0]) == {"question1", "question2"}


def test_labels_beside_the_cases_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    cases = [{"inputs": ["a"]}, {"inputs": ["b"]}]
    for labels, kept in ((1, [1, 1]), ([0, 1], [0, 1])):
        path.write_text(line(cases=cases, labels=labels), encoding="utf-8")
        assert [case.label for case in read_checklist(path)[0].tests[0].cases] == kept


@pytest.mark.parametrize("scope", ["testcase", "test"])
def test_a_rule_may_be_given_for_code_over_cases(tmp_path: Path, scope: str) -> None:
    told = {"kind": "rule", "scope": scope, "params": {"expect": "agree"}}
    path = tmp_path / "x.jsonl"
    path.write_text(line(expectation=told, cases=[{"inputs": ["a", "b"]}]), encoding="utf-8")
    (test,) = read_checklist(path)[0].tests
    assert (test.expect, test.aggregate) == ({"expect": "agree"}, "all")


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"tests": []}),
        gzip.compress(pickle.dumps([]), mtime=0),
        b"cdill._dill\n_create_type\n",
        b"x" * 257 + b"ustar" + b"x" * 250,
    ],
)
def test_a_pickle_is_named_and_never_opened(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "qqp_suite.pkl"
    path.write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"pickle.*not opened here.*python .*checklist_converter\.py suite\.pkl"
    ):
        read_checklist(path)
    assert CONVERTER.exists()


def test_the_converter_needs_nothing_of_outrider() -> None:
    tree = ast.parse(CONVERTER.read_text(encoding="utf-8"), feature_version=(3, 6))
    imported = [
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    ] + [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert set(imported) == {"argparse", "dis", "importlib", "json", "sys", "typing"}


@pytest.mark.parametrize(
    ("text", "label", "probs"),
    [
        ("0.93\n0.2\n", [1, 0], [[0.07, 0.93], [0.8, 0.2]]),
        ("0.2 0.8\n1 0\n", [1, 0], [[0.2, 0.8], [1, 0]]),
        ("0.1 0.2 0.7\n", [2], [[0.1, 0.2, 0.7]]),
        ("1 0.5\n0 1\n", [1, 0], [0.5, 1.0]),
        ("2 0.1 0.2 0.7\n", [2], [[0.1, 0.2, 0.7]]),
        ("2.0 0.1 0.2 0.7\n", [2], [[0.1, 0.2, 0.7]]),
        ("1\n0\n", [1, 0], [1.0, 1.0]),
        ("3.5\n-1\n", [3.5, -1.0], [1.0, 1.0]),
        ("yes\nno\n", ["yes", "no"], [1.0, 1.0]),
        ("in the red car\n1999\n\nby 12 people\n", ["in the red car", "1999", "", "by 12 people"], [1.0] * 4),
    ],
)
def test_the_formats_of_checklist_are_told_apart(
    tmp_path: Path, text: str, label: list[Any], probs: list[Any]
) -> None:
    (tmp_path / "p.txt").write_text(text, encoding="utf-8")
    found = read_predictions(tmp_path / "p.txt")
    assert found["label"].tolist() == label
    np.testing.assert_allclose(found["probs"], probs, atol=1e-12)


def test_probabilities_that_do_not_sum_to_one_are_named(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("0.2 0.8\n0.2 0.3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"line 2: .*sum to 1 expected, got 0\.2 0\.3"):
        read_predictions(tmp_path / "p.txt")
