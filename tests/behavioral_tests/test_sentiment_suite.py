"""A real model, trained here, runs CheckList's whole suite through pytest; the page shows what came."""

import json
from pathlib import Path

import pytest

from benchmarks.behavioral.sentiment import Ran, block, run
from benchmarks.results import RESULTS
from tests.requirements import require_data


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Train, import, pytest: about 15 s on one core."""
    require_data("sst2")
    require_data("checklist")
    folder: Path = tmp_path_factory.mktemp("sentiment")
    return run(folder)


@pytest.mark.costly("a language model answers a whole suite")
def test_the_whole_suite_ran_on_a_model_that_is_better_than_chance(ran: Ran) -> None:
    tests = ran.report["tests"]
    assert len(tests) == 38
    assert sum(test["asked"] for test in tests) == 178_578
    assert ran.accuracy > 0.8
    assert {test["status"] for test in tests} == {"passed", "failed"}
    assert len(ran.report["matrix"]) == 7


def test_the_page_shows_what_the_commands_gave(ran: Ran) -> None:
    written = json.loads((RESULTS / "behavioral.sentiment.json").read_text(encoding="utf-8"))
    assert written["tables"]["matrix"] == block(ran).strip("\n"), (
        "run `python -m benchmarks.results behavioral.sentiment`"
    )


def test_failures_of_pytest_are_shown_with_capability_and_interval(ran: Ran) -> None:
    assert "38" in ran.summary
    assert "Negation" in ran.summary
    for test in ran.report["tests"]:
        assert test["low"] <= test["rate"] <= test["high"]
