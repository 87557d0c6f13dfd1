import json
import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

PLUGIN = ("-p", "outrider.pytest_plugin", "-p", "no:cacheprovider")
MODEL = """
import numpy as np

def predict(batch):
    return {"label": np.array([int(text.endswith("!")) for text in batch.column("inputs.text")])}
"""
SUITE = """
import pytest
from outrider.behavioral_tests import INV, MFT, perturb

test_marks = MFT(cases=["hi!", "hi", "ho"], labels=[1, 0, 1], capability="marks", description="loud is 1")
test_case = INV(cases=["Hi!", "hi"], perturb=perturb.text.case(to="upper"), capability="form")
test_no_case = INV(cases=["HI"], perturb=perturb.text.case(to="upper"), capability="form")
test_live = INV(perturb=perturb.text.typos(), capability="form", live=0.1)

def test_plain():
    pass
"""


@pytest.fixture(autouse=True)
def _importable_from_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, *filter(None, sys.path)]))


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(model=MODEL, test_suite=SUITE)
    pytester.makeini("[pytest]\noutrider_model = model.py:predict\n")
    return pytester


def test_one_node_per_test_with_stable_ids(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess(*PLUGIN, "--collect-only", "-q")
    result.stdout.fnmatch_lines(
        [
            f"test_suite.py::{name}"
            for name in ("test_marks", "test_case", "test_no_case", "test_live", "test_plain")
        ]
    )


def test_failures_show_figures_and_examples_and_fail_the_run(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(passed=2, failed=1, skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "test_marks (MFT, marks): 1 of 3 cases failed, 33.3% (95 % interval 6.1% to 79.2%); at most *",
            "  loud is 1",
            "  [[]2[]] text='ho' -> label=0, expected label=1",
            "*behavioral tests*",
            "capability  MFT * INV",
            "marks       FAIL 1/3 33.3% [[]6.1%, 79.2%[]]  -",
            "form        -  *ok   0/2 0.0% [[]0.0%, 65.8%[]]",
            "worst examples:",
            "  test_marks (MFT, marks), 1 failed",
            "    [[]2[]] text='ho' -> label=0, expected label=1",
        ]
    )
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(
    ("word", "passed"), [("form", 1), ("test_case", 1), ("INV and not test_live", 1), ("plain", 1)]
)
def test_selection_by_name_capability_and_type(project: pytest.Pytester, word: str, passed: int) -> None:
    result = project.runpytest_inprocess(*PLUGIN, "-k", word)
    assert result.parseoutcomes()["passed"] == passed
    assert result.ret == 0


def test_nothing_selected_is_exit_code_5(project: pytest.Pytester) -> None:
    assert project.runpytest_inprocess(*PLUGIN, "-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_json_and_junit_carry_the_figures(project: pytest.Pytester) -> None:
    reports = ("--outrider-json", "reports/out.json", "--outrider-html", "reports/pages/out.html")
    project.runpytest_inprocess(*PLUGIN, *reports, "--junitxml", "out.xml")  # folders are made
    assert "test_marks" in (project.path / "reports/pages/out.html").read_text(encoding="utf-8")
    written = json.loads((project.path / "reports/out.json").read_text(encoding="utf-8"))
    assert written["passed"] is False
    assert {test["name"]: test["failures"] for test in written["tests"]} == {
        "test_case": 0,
        "test_marks": 1,
        "test_no_case": 0,
    }
    assert written["matrix"]["marks"]["MFT"]["cases"] == 3
    junit = ET.parse(project.path / "out.xml")
    properties = {
        node.get("name"): node.get("value")
        for node in junit.iterfind(".//testcase[@name='test_marks']/properties/property")
    }
    assert properties["outrider_capability"] == "marks"
    assert properties["outrider_failures"] == "1"


def test_the_option_beats_the_setting_and_modules_work(project: pytest.Pytester) -> None:
    project.makepyfile(other=MODEL.replace('"!"', '"x"'))
    result = project.runpytest_inprocess(*PLUGIN, "-k", "test_marks", "--outrider-model", "other:predict")
    result.stdout.fnmatch_lines(["*2 of 3 cases failed*"])


def test_a_conftest_may_give_the_model(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import numpy as np, pytest

        @pytest.fixture(scope="session")
        def outrider_model():
            return lambda batch: {"label": np.ones(batch.rows, dtype=int)}
        """
    )
    result = project.runpytest_inprocess(*PLUGIN, "-k", "test_case")
    result.assert_outcomes(passed=1, deselected=4)


@pytest.mark.parametrize(
    ("reference", "line"),
    [
        (None, "*no model to test: give --outrider-model*"),
        ("model.py:nothing", "*nothing is not defined there*"),
        ("missing.py:predict", "*missing.py does not exist*"),
        ("nonsense", "*'nonsense' is no model*"),
    ],
)
def test_a_missing_model_is_said_in_one_line(
    project: pytest.Pytester, reference: str | None, line: str
) -> None:
    project.makeini("[pytest]\n")
    options = () if reference is None else ("--outrider-model", reference)
    result = project.runpytest_inprocess(*PLUGIN, "-k", "test_case", *options)
    assert result.ret == 1
    result.stdout.fnmatch_lines([line])


def test_a_run_that_does_not_use_it_is_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_plain():
            heavy = {"outrider.behavioral_tests", "outrider.assertions", "numpy", "pandas", "torch", "typer"}
            assert not heavy & set(sys.modules)
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(passed=1)
    assert "behavioral tests" not in result.stdout.str()


@pytest.mark.costly("pytest itself is run, with workers of its own")
def test_workers_of_xdist_report_to_the_same_matrix(project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    result = project.runpytest_subprocess(*PLUGIN, "-n", "2", "--outrider-json", "out.json")
    result.assert_outcomes(passed=2, failed=1, skipped=2)
    result.stdout.fnmatch_lines(["marks       FAIL 1/3*"])
    assert len(json.loads((project.path / "out.json").read_text(encoding="utf-8"))["tests"]) == 3


def test_naming_the_installed_plugin_again_is_harmless(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What an installation leaves behind: metadata with the entry point.
    info = pytester.mkdir("site") / "outrider_twin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: outrider-twin\nVersion: 1\n", encoding="utf-8"
    )
    name = entry_point()
    (info / "entry_points.txt").write_text(f"[pytest11]\n{name} = outrider.pytest_plugin\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path / "site"), prepend=os.pathsep)
    pytester.makepyfile("def test_plain(): pass")
    pytester.makeconftest('pytest_plugins = ["outrider.pytest_plugin"]')
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def entry_point() -> str:
    """Name under which pyproject.toml registers the plugin."""
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    (name,) = project["project"]["entry-points"]["pytest11"]
    return str(name)
