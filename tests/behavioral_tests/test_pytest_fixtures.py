"""Fixtures of the pytest plugin in ordinary tests."""

import os
import sys
from pathlib import Path

import pytest

import outrider.assertions  # noqa: F401 - a run inside this process must not import numpy first

PLUGIN = ("-p", "outrider.pytest_plugin", "-p", "no:cacheprovider")
CHECKS = """
from outrider.assertions import assertion

@assertion(level="critical")
def too_sure(batch):
    return (batch.column("outputs.score") > 0.9) * batch.column("outputs.score")

@assertion(level="info")
def always(batch):
    return batch.column("outputs.score") >= 0
"""
CONFTEST = """
import numpy as np, pytest

@pytest.fixture(scope="session")
def outrider_model():
    return lambda batch: {"score": batch.column("inputs.x") / 10}
"""
TESTS = """
from outrider.assertions import Batch

ROWS = [{"id": f"r{x}", "x": float(x)} for x in range(11)]

def test_flags_of_a_file(outrider_flags):
    flags = outrider_flags("checks.py", ROWS)
    assert flags.counts == {"too_sure": 1, "always": 11}

def test_critical(outrider_flags):
    outrider_flags("checks.py", [*ROWS, {"id": "worst", "x": 12.0}]).raise_for("critical")

def test_answers_that_are_there_are_judged(outrider_flags):
    import checks

    batch = Batch.from_records([{"id": "a", "inputs": {"x": 0.0}, "outputs": {"score": 0.95}}], model="m")
    assert outrider_flags([checks.too_sure], batch).counts == {"too_sure": 1}

def test_dataset(outrider_dataset):
    outrider_dataset("train", 3)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, *filter(None, sys.path)]))
    monkeypatch.delenv("OUTRIDER_URL", raising=False)
    pytester.makepyfile(checks=CHECKS, test_records=TESTS)
    pytester.makeconftest(CONFTEST)
    return pytester


def test_flags_of_a_file_or_of_assertions(project: pytest.Pytester) -> None:
    project.runpytest_inprocess(*PLUGIN, "-k", "file or judged").assert_outcomes(passed=2, deselected=2)


def test_what_fired_is_readable(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess(*PLUGIN, "-k", "critical")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(
        ["E  *AssertionsFired: too_sure (critical): 2 records, worst 'worst' (1.2), 'r10' (1)"]
    )


def test_a_dataset_that_is_not_there_is_said_in_one_line(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess(*PLUGIN, "-k", "dataset")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(["*outrider.toml*"])
    assert "Traceback" not in result.stdout.str()
