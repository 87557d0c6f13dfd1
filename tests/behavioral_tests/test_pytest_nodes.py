"""Nodes of the pytest plugin: marks, fixtures with several values, repeated runs, errors."""

import json
import os
import sys
from pathlib import Path

import pytest

from outrider.behavioral_tests import (
    load_suite,
)  # also: a run inside this process must not import numpy first
from outrider.pytest_items import node_name

PLUGIN = ("-p", "outrider.pytest_plugin")
SUITE = """
import pytest
from outrider.behavioral_tests import INV, MFT, perturb

test_loud = MFT(cases=["hi!", "hi"], labels=[1, 0], capability="marks")
test_known = pytest.mark.xfail(reason="not yet", strict=True)(MFT(cases=["a"], labels=1, capability="marks"))
test_slow = pytest.mark.slow(pytest.mark.skipif(True, reason="never")(MFT(cases=["b"], labels=0)))
test_marked = pytest.mark.usefixtures("said")(MFT(cases=["c"], labels=0))
test_broken = INV(cases=["c"], perturb=perturb.each("nothing", lambda text, rng: text), capability="form")
"""
CONFTEST = """
import numpy as np, pytest

@pytest.fixture
def said():
    print("said is used")

@pytest.fixture(scope="module", autouse=True)
def around():
    yield

@pytest.fixture(scope="session")
def outrider_model():
    return lambda batch: {"label": np.array([int("!" in text) for text in batch.column("inputs.text")])}
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, *filter(None, sys.path)]))
    pytester.makepyfile(test_suite=SUITE)
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nmarkers =\n    slow: takes long\n")
    return pytester


def test_marks_around_a_test_work_as_around_a_function(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess(*PLUGIN, "-rs", "-s")
    result.assert_outcomes(passed=2, xfailed=1, skipped=1, failed=1)
    result.stdout.fnmatch_lines(["*said is used*", "SKIPPED*never"])
    project.runpytest_inprocess(*PLUGIN, "-m", "slow").assert_outcomes(skipped=1, deselected=4)


def test_marks_are_nothing_to_the_command_line(project: pytest.Pytester) -> None:
    names = [test.name for test in load_suite(project.path / "test_suite.py").tests]
    assert names == ["test_loud", "test_known", "test_slow", "test_marked", "test_broken"]


def test_what_raises_is_named_in_the_summary(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess(*PLUGIN, "--outrider-json", "out.json")
    result.stdout.fnmatch_lines(
        ["*form * error", "could not be run:", "  test_broken (INV, form): *nothing*"], consecutive=False
    )
    tests = json.loads((project.path / "out.json").read_text(encoding="utf-8"))["tests"]
    assert {test["name"]: test["status"] for test in tests}["test_broken"] == "error"
    assert all(test["revision"] and test["suite"] == "test_suite" for test in tests)


def test_a_model_that_cannot_be_built_is_an_error_of_every_test(project: pytest.Pytester) -> None:
    project.makeconftest(
        CONFTEST.replace("    return lambda", "    raise OSError('no weights')\n    return lambda")
    )
    result = project.runpytest_inprocess(*PLUGIN)
    assert result.parseoutcomes()["errors"] == 3
    result.stdout.fnmatch_lines(["could not be run:", "  test_loud (MFT, marks): OSError: no weights"])


def test_a_model_fixture_with_values_makes_a_node_for_each(project: pytest.Pytester) -> None:
    project.makeconftest(
        CONFTEST.replace('scope="session")', 'scope="session", params=["a", "b"])').replace(
            "def outrider_model():", "def outrider_model(request):"
        )
    )
    result = project.runpytest_inprocess(*PLUGIN, "-k", "loud", "-v", "--outrider-json", "out.json")
    result.assert_outcomes(passed=2, deselected=8)
    result.stdout.fnmatch_lines(["test_suite.py::test_loud[[]a[]]*", "test_suite.py::test_loud[[]b[]]*"])
    tests = json.loads((project.path / "out.json").read_text(encoding="utf-8"))["tests"]
    assert [test["name"] for test in tests] == ["test_loud[a]", "test_loud[b]"]


def test_a_behavioral_test_in_a_class_is_an_error_and_not_passed_over(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_suite="""
        from outrider.behavioral_tests import MFT

        class TestMarks:
            test_inside = MFT(cases=["hi"], labels=1)
        """
    )
    result = project.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_inside stands in a class: a behavioral test stands in a module*"])


def test_only_what_failed_last_runs_again(project: pytest.Pytester) -> None:
    project.runpytest_inprocess(*PLUGIN)
    result = project.runpytest_inprocess(*PLUGIN, "--lf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED test_suite.py::test_broken*"])


def test_the_place_of_a_test_is_its_line(project: pytest.Pytester) -> None:
    items, _ = project.inline_genitems(*PLUGIN)
    assert [(item.name, item.location[1]) for item in items[:2]] == [("test_loud", 3), ("test_known", 4)]


def test_names_become_ids_that_can_be_selected() -> None:
    taken: set[str] = set()
    names = ['change "names"', "a::b\n c", "a:b c", "zero\0"]
    assert [node_name(name, taken) for name in names] == ['change "names"', "a:b c", "a:b c #2", r"zero\x00"]


def suite_file(project: pytest.Pytester) -> None:
    def test(name: str, *cases: tuple[str, int]) -> dict[str, object]:
        written = [{"inputs": [text], "label": label} for text, label in cases]
        return {"name": name, "kind": "MFT", "capability": "written", "cases": written}

    tests = [
        test('change "names" & co', ("hi", 0)),
        test("it's: a::b [x]", ("hi", 1), ("ho!", 1)),
        test("Hosenanzüge", ("ho!", 1)),
    ]
    document = {"outrider_suite": 1, "name": "mood", "tests": tests}
    (project.path / "mood.suite.json").write_text(json.dumps(document), encoding="utf-8")


def test_suite_files_are_collected_with_ids_that_select(project: pytest.Pytester) -> None:
    suite_file(project)
    result = project.runpytest_inprocess(*PLUGIN, "mood.suite.json", "-v")
    result.assert_outcomes(passed=2, failed=1)
    ids = ['change "names" & co', "it's: a:b (x)", "Hosenanzüge"]
    result.stdout.fnmatch_lines([f"mood.suite.json::{name} *" for name in ids])
    for name, outcomes in zip(ids, ({"passed": 1}, {"failed": 1}, {"passed": 1}), strict=True):
        one = project.runpytest_inprocess(*PLUGIN, f"mood.suite.json::{name}", "--outrider-json", "out.json")
        assert one.parseoutcomes() == outcomes
        (told,) = json.loads((project.path / "out.json").read_text(encoding="utf-8"))["tests"]
        assert (told["suite"], told["capability"]) == ("mood", "written")
    project.runpytest_inprocess(*PLUGIN, "-k", "names and MFT").assert_outcomes(passed=1, deselected=7)
    project.runpytest_inprocess(*PLUGIN, "mood.suite.json")
    project.runpytest_inprocess(*PLUGIN, "mood.suite.json", "--lf").assert_outcomes(failed=1)


@pytest.mark.costly("pytest itself is run, with workers of its own")
def test_suite_files_are_spread_over_workers(project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    suite_file(project)
    result = project.runpytest_subprocess(
        *PLUGIN, "-n", "2", "mood.suite.json", "--outrider-html", "out.html"
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["written * FAIL 1/4*"])
    assert "Hosenanzüge" in (project.path / "out.html").read_text(encoding="utf-8")


def test_a_suite_file_that_cannot_be_read_says_where(project: pytest.Pytester) -> None:
    (project.path / "bad.suite.json").write_text('{"outrider_suite": 1, "tests": 7}', encoding="utf-8")
    result = project.runpytest_inprocess(*PLUGIN, "bad.suite.json")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*bad.suite.json*"])
    assert "Traceback" not in result.stdout.str()
