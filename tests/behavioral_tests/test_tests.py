"""MFT, INV, DIR and suites on models of two lines."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests import (
    DIR,
    INV,
    MFT,
    Outcome,
    Suite,
    expect,
    load_suite,
    perturb,
    report,
    template,
)
from outrider.behavioral_tests.cases import to_batch, to_cases
from outrider.behavioral_tests.outcome import Measure, Measured
from outrider.behavioral_tests.suite import revisions
from outrider.errors import ConfigError

GAP = (Measure("gap", 0.2, 0.1, 0.3, 4),)


def shouting(batch: Batch) -> Mapping[str, NDArray[Any]]:
    """Label 1 for texts that end in an exclamation mark; a score that grows with their length."""
    texts = batch.column("inputs.text").tolist()
    return {
        "label": np.array([int(text.endswith("!")) for text in texts]),
        "score": np.array([len(text) / 100 for text in texts]),
    }


def test_an_mft_counts_wrong_answers_and_shows_the_worst() -> None:
    outcome = MFT(name="test_x", cases=["hi!", "hi", "ho"], labels=[1, 0, 1], capability="volume").run(
        shouting
    )
    assert (outcome.cases, outcome.failures, outcome.rate, outcome.status) == (3, 1, 1 / 3, "failed")
    assert outcome.low < 1 / 3 < outcome.high
    (example,) = outcome.examples
    assert example.inputs == {"text": "ho"}
    assert example.outputs == {"label": 0, "score": 0.02}
    assert example.label == {"label": 1}
    assert "1 of 3 cases failed, 33.3 %" in outcome.message.replace("%", " %").replace("  %", " %")


def test_a_tolerance_is_the_largest_rate_that_passes() -> None:
    test = MFT(name="test_x", cases=["hi!", "hi"], labels=1, tolerance=0.5)
    assert test.run(shouting).passed


def test_an_inv_judges_changed_records_only() -> None:
    test = INV(name="test_x", cases=["hi!", "hi", "no"], perturb=perturb.each("text", strip_mark))
    outcome = test.run(shouting)
    assert (outcome.cases, outcome.failures, outcome.not_applicable) == (1, 1, 2)
    (example,) = outcome.examples
    assert example.original_inputs == {"text": "hi!"}
    assert example.inputs == {"text": "hi"}
    assert example.original_outputs is not None
    assert example.original_outputs["label"] == 1


def strip_mark(text: str, rng: np.random.Generator) -> str | None:
    return text.removesuffix("!")


def test_a_dir_judges_the_direction() -> None:
    longer = perturb.each("text", lambda text, rng: text + " and so on")
    up = expect.monotone("score", direction="increasing")
    down = expect.monotone("score", direction="decreasing")
    assert DIR(name="test_up", cases=["hi"], perturb=longer, expect=up).run(shouting).passed
    assert DIR(name="test_down", cases=["hi"], perturb=longer, expect=down).run(shouting).failures == 1


def test_live_questions_and_judgement_agree_with_a_run() -> None:
    test = INV(name="test_case", perturb=perturb.text.typos(), expect=expect.same("label"), live=0.1)
    texts = ["hi!", "aaa", "so", "!"]
    batch = Batch.from_records(
        [{"id": f"r{row}", "inputs": {"text": text}} for row, text in enumerate(texts)], model="m"
    )
    batch = batch.with_outputs(shouting(batch))
    questions = test.questions(batch, rng=np.random.default_rng(0))
    assert questions.rows.tolist() == [0, 2]
    assert questions.batch.keys.tolist() == ["r0~test_case", "r2~test_case"]
    assert not any(name.startswith("outputs.") for name in questions.batch.names)
    answers = questions.batch.with_outputs(shouting(questions.batch))
    judgement = test.judge(batch.take(questions.rows), answers)
    assert judgement.failed.tolist() == [not str(answers.column("inputs.text")[0]).endswith("!"), False]


def test_no_applicable_record_asks_nothing() -> None:
    test = INV(name="test_case", perturb=perturb.text.case(to="lower"))
    batch = Batch.from_records([{"inputs": {"text": "low"}}], model="m").with_outputs(
        {"label": np.array([1])}
    )
    questions = test.questions(batch, rng=np.random.default_rng(0))
    assert questions.batch.rows == len(questions.rows) == 0


@pytest.mark.parametrize(
    "rule",
    [
        expect.same("label"),
        expect.single(expect.within("score", low=0.0)),
        expect.agree("label"),
        expect.suite(lambda batch: bool(batch.column("outputs.score").mean() > 0)),
    ],
)
def test_a_test_whose_change_applies_to_nothing_is_skipped_whatever_it_expects(rule: expect.Rule) -> None:
    never = perturb.each("text", lambda text, rng: None)
    for test in (
        INV(name="changed", cases=["hi", "ho"], perturb=never, expect=rule),
        INV(name="written", cases=[["hi"], ["ho"]], expect=rule),
    ):
        outcome = test.run(shouting)
        assert (outcome.status, outcome.cases, outcome.not_applicable) == ("skipped", 0, 2)
        assert report.to_json([outcome])["passed"] is False  # as the exit code, which is 5


def test_results_do_not_depend_on_the_run() -> None:
    test = INV(name="test_x", cases=["hello!", "world!", "friends!"] * 20, perturb=perturb.text.typos())
    assert test.run(shouting, seed=4) == test.run(shouting, seed=4)
    assert any(test.run(shouting, seed=seed) != test.run(shouting, seed=4) for seed in range(5, 9))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json", ".jsonl"])
def test_cases_come_from_a_file_beside_the_suite(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "text": ["hi!", "hi"], "label": [1, 1]})
    path = tmp_path / f"cases{suffix}"
    match suffix:
        case ".csv":
            frame.to_csv(path, index=False)
        case ".parquet":
            frame.to_parquet(path)
        case ".json":
            frame.to_json(path, orient="records")
        case _:
            path.write_text(
                "".join(json.dumps(row) + "\n" for row in frame.to_dict("records")), encoding="utf-8"
            )
    outcome = MFT(name="test_x", cases=path.name).named("test_x", folder=tmp_path).run(shouting)
    assert [example.id for example in outcome.examples] == ["b"]


def test_words_of_a_csv_file_stay_words_where_pandas_reads_them_as_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("country,age,member,label\nNA,NA,True,None\nDE,4,NA,a\n,5,False,b\n", encoding="utf-8")
    batch = to_batch(path)
    assert batch.arrow("inputs.country").to_pylist() == ["NA", "DE", None]
    assert batch.arrow("inputs.age").to_pylist() == [None, 4.0, 5.0]
    assert batch.arrow("inputs.member").to_pylist() == [True, None, False]
    assert batch.arrow("label.label").to_pylist() == ["None", "a", "b"]


def test_what_a_column_of_objects_lacks_is_missing() -> None:
    frame = pd.DataFrame(
        {"text": ["a", np.nan], "member": [np.nan, True], "tags": [None, ["b"]]}, dtype=object
    )
    batch = to_batch(frame)
    assert batch.arrow("inputs.text").to_pylist() == ["a", None]
    assert batch.arrow("inputs.member").to_pylist() == [None, True]
    assert batch.arrow("inputs.tags").to_pylist() == [None, ["b"]]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_json_files_hold_what_a_list_in_python_may(tmp_path: Path, suffix: str) -> None:
    cases = [["a\u2028b", "c"], ["d", "e"]]
    path = tmp_path / f"cases{suffix}"
    lines = [json.dumps(case, ensure_ascii=False) for case in cases]
    text = f"[{', '.join(lines)}]" if suffix == ".json" else "\n".join(lines)
    path.write_text(text, encoding="utf-8-sig")  # as some editors write it
    grouped = to_cases(path)
    assert grouped.case.tolist() == [0, 0, 1, 1]
    assert grouped.batch.column("inputs.text").tolist() == ["a\u2028b", "c", "d", "e"]


def test_a_json_object_is_no_list_of_its_names(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text('{"cases": ["hi!"], "labels": [1]}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"cases\.json: a list expected, got dict"):
        to_batch(path)


@pytest.mark.parametrize(
    "cases",
    [
        ["hi!"],
        [{"text": "hi!"}],
        [{"id": 7, "inputs": {"text": "hi!"}, "label": {"label": 1}}],
        pd.DataFrame({"text": ["hi!"]}),
        pd.DataFrame({"inputs.text": ["hi!"], "label.label": [1]}),
        Batch.from_records([{"inputs": {"text": "hi!"}}], model="m"),
        template("{word}!", word=["hi"]),
        lambda: ["hi!"],
    ],
)
def test_cases_have_many_forms(cases: Any) -> None:
    assert MFT(name="test_x", cases=cases, labels=1).run(shouting).passed


def test_cases_without_an_order_are_refused() -> None:
    with pytest.raises(TypeError, match="cases need an order to be repeatable, got a set"):
        to_cases({"hi!", "ho!"})  # type: ignore[arg-type]  # on purpose


def test_images_are_cases_too() -> None:
    cases = [{"image": np.full((8, 8), 0.5)}, {"image": np.zeros((8, 8))}]
    test = INV(name="test_x", cases=cases, perturb=perturb.image.brightness(by=0.3))
    outcome = test.run(
        lambda batch: {"label": (batch.tensor("inputs.image").mean(axis=(1, 2)) > 0.6).astype(int)}
    )
    assert (outcome.cases, outcome.failures) == (2, 1)
    assert isinstance(outcome.examples[0].inputs["image"], list)


def test_no_cases_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one case"):
        MFT(name="test_x", cases=[]).run(shouting)
    with pytest.raises(ValueError, match="no cases of its own"):
        INV(name="test_x", perturb=perturb.text.typos()).run(shouting)


@pytest.mark.parametrize(
    ("predictor", "error"),
    [
        (lambda batch: np.zeros(batch.rows), TypeError),
        (lambda batch: {"label": np.zeros(batch.rows + 1)}, ValueError),
        (lambda batch: {"label": 1}, ValueError),
    ],
)
def test_a_predictor_of_another_form_is_refused(predictor: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"by field name|one value per record"):
        MFT(name="test_x", cases=["a"], labels=1).run(predictor)


def test_a_model_never_sees_the_right_answers() -> None:
    seen: list[str] = []

    def peeking(batch: Batch) -> Mapping[str, NDArray[Any]]:
        seen.extend(batch.names)
        return shouting(batch)

    outcome = MFT(name="test_loud", cases=[{"text": "hi!", "label": 1}, {"text": "hi", "label": 1}]).run(
        peeking
    )
    assert (outcome.failures, outcome.cases) == (1, 2)
    assert "inputs.text" in seen
    assert not [name for name in seen if name.startswith("label.")]


def test_rates_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="live is a rate"):
        INV(perturb=perturb.text.typos(), live=5)
    with pytest.raises(ValueError, match="tolerance is a rate"):
        MFT(cases=["a"], tolerance=-1)
    with pytest.raises(
        ValueError, match="all, all_except_first, any, mean or a function of severities, got 'worst'"
    ):
        MFT(cases=["a"], aggregate="worst")  # type: ignore[arg-type]  # on purpose
    for confidence in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="confidence must lie between 0 and 1"):
            MFT(cases=["a"], confidence=confidence)


def test_an_outcome_survives_json() -> None:
    outcome = MFT(name="test_x", cases=["hi!", "ho"], labels=1).run(shouting)
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome


SUITE = """
from outrider.behavioral_tests import INV, MFT, perturb

test_marks = MFT(cases=["hi!", "hi"], labels=[1, 0], capability="marks")
test_case = INV(cases=["Hi!"], perturb=perturb.text.case(to="upper"), capability="form", live=0.2)
test_live_only = INV(perturb=perturb.text.typos(), capability="form", live=1.0)
helper = MFT(cases=["x"], labels=1)
"""


def test_a_suite_file_gives_named_tests_with_revisions(tmp_path: Path) -> None:
    path = tmp_path / "test_suite.py"
    path.write_text(SUITE, encoding="utf-8")
    suite, before = load_suite(path), revisions(path)[""]
    assert [test.name for test in suite.tests] == ["test_marks", "test_case", "test_live_only"]
    assert [test.name for test in suite.live] == ["test_case", "test_live_only"]
    assert [test.capability for test in suite.tests] == ["marks", "form", "form"]
    path.write_text(SUITE.replace('"Hi!"', '"Ho!"'), encoding="utf-8")
    again = load_suite(path)
    changed = [new.revision != old.revision for new, old in zip(again.tests, suite.tests, strict=True)]
    assert changed == [False, True, False]
    worded = SUITE.replace("helper = MFT(", "# Of nobody.\nhelper = MFT(").replace('["x"]', '(["x"])')
    path.write_text(f'"""Marks."""\n{worded}', encoding="utf-8")
    assert [test.revision for test in load_suite(path).tests] == [test.revision for test in suite.tests]
    assert revisions(path)[""] == before


def test_a_suite_runs_what_has_cases(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    suite = load_suite(tmp_path / "test_suite.py")
    assert [outcome.name for outcome in suite.run(shouting)] == ["test_marks", "test_case"]
    records = Batch.from_records([{"inputs": {"text": "hello"}}], model="m")
    assert [outcome.passed for outcome in suite.run(shouting, cases=records)] == [True, True, True]


def test_a_broken_suite_file_says_where(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text("x = 1\ny = 1 / 0\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"test_suite\.py:2: ZeroDivisionError"):
        load_suite(tmp_path / "test_suite.py")
    with pytest.raises(ConfigError, match="does not exist"):
        load_suite(tmp_path / "nothing.py")


def test_names_in_a_suite_are_distinct() -> None:
    test = MFT(name="test_x", cases=["a"], labels=1)
    with pytest.raises(ValueError, match="distinct name"):
        Suite("s", (test, test))


def test_importing_the_package_is_light() -> None:
    heavy = ["torch", "great_expectations", "pytest", "sqlmodel", "typer"]
    code = f"import sys, outrider.behavioral_tests; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_figure_of_the_whole_test_is_not_counted_among_the_cases_of_the_matrix() -> None:
    always = MFT(name="test_each", cases=["a", "b", "c"], expect=expect.in_set([1]))
    gap = MFT(name="test_gap", cases=["a"] * 4, expect=expect.suite(lambda examples: Measured(False, GAP)))
    outcomes = [test.run(lambda batch: {"label": np.ones(batch.rows, dtype=int)}) for test in (always, gap)]
    cell = report.matrix(outcomes)["general"]["MFT"]
    assert (cell.cases, cell.failures, cell.figures, cell.figures_failed) == (3, 0, 1, 1)
    assert str(cell) == "FAIL 0/3 0.0% [0.0%, 56.1%], 0 of 1 figure met"


def test_tests_that_ended_early_lend_the_matrix_their_own_bounds() -> None:
    test = MFT(name="test_each", cases=["a"] * 2000, expect=expect.in_set([1]), tolerance=0.1, stop="decided")
    outcome = test.run(lambda batch: {"label": np.ones(batch.rows, dtype=int)})
    cell = report.matrix([outcome])["general"]["MFT"]
    assert outcome.cases < 2000
    assert (cell.low, cell.high) == (outcome.low, outcome.high)
