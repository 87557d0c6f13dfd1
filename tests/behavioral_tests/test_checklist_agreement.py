"""CheckList's sentiment suite gives the counts and failing cases of CheckList's own code."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from outrider.behavioral_tests import Outcome, load_suite
from outrider.behavioral_tests.prediction_files import read_predictions, write_examples
from outrider.behavioral_tests.predictions import asked_by, recorded
from outrider.behavioral_tests.suite_file import write
from outrider.behavioral_tests.suite_file.checklist import read_checklist
from outrider.errors import ConfigError
from tests.requirements import require_data


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checklist") / "sentiment.suite.json"
    write(read_checklist(require_data("checklist") / "sentiment_suite.jsonl.gz", released=True), path)
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
    written = read_checklist(require_data("checklist") / "sentiment_suite.jsonl.gz")
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
    read_checklist(require_data("checklist") / "sentiment_suite.jsonl.gz", released=True)
    written = read_checklist(require_data("checklist") / "sentiment_suite.jsonl.gz", released=True)
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
        ({"expectation": {"kind": "inv", "scope": "pairwise", "params": {"tolerance": 0.1}}}, "no original"),
        ({"cases": [{"inputs": "a"}]}, r"Expected `array`, got `str` - at `\$.cases\[0\].inputs`"),
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
