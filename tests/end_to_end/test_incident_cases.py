"""From incident to test, on a real service: flags become cases that pytest and the command line run."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .service import Service, outrider, wait_until, write_project

BEHAVIOR = """
from outrider.behavioral_tests import DIR, INV, expect


def nudge(batch, rng):
    return batch.with_columns({"inputs.x": batch.column("inputs.x") + 0.05})


test_nudge = INV(perturb=nudge, live=1.0, capability="robustness")
test_certainty = DIR(
    perturb=nudge, live=1.0, capability="order", expect=expect.monotone("score", direction="increasing")
)
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    config = write_project(tmp_path_factory.mktemp("incidents"))
    (config.parent / "test_toy.py").write_text(BEHAVIOR, encoding="utf-8")
    with Service(config) as running:
        values = [0.95, 0.97, 0.47, 0.2, 0.99]
        records = [
            {"id": f"r{at}", "inputs": {"x": x}, "outputs": {"label": 1, "score": 0.9}}
            for at, x in enumerate(values)
        ]
        assert running.post(records).status_code == 202
        label = {"model": "toy", "id": "r0", "label": {"label": 0}, "source": "ann"}
        assert running.client.post("/v1/labels", json=[label]).status_code == 202
        running.wait_judged(5)
        wait_until(lambda: running.query("SELECT 1 FROM label") != [], "a label", running)
        wait_until(
            lambda: running.query("SELECT 1 FROM flag WHERE assertion = 'test_nudge'") != [],
            "a live flag",
            running,
        )
        yield running


def add(service: Service, *arguments: str, code: int = 0) -> Any:
    done = outrider(service.config.parent, "test", "add", *arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def incidents(service: Service) -> Path:
    return service.config.parent / "behavior" / "incidents.suite.json"


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_flags_become_cases_that_are_run(service: Service) -> None:
    found = add(service, "--flags", "assertion=too_high since=1h", code=1)
    assert [(row["case"], row["state"]) for row in found["cases"]] == [("r0", "added")]
    assert {row["case"] for row in found["refused"]} == {"r1", "r4"}
    assert all("right answer is unknown" in row["reason"] for row in found["refused"])
    (row,) = add(service, "--record", "r1", "--label", "1")["cases"]
    assert row == {
        "file": "behavior/incidents.suite.json",
        "test": "answers_to_reported_records",
        "case": "r1",
        "state": "added",
    }
    flag = service.query("SELECT id FROM flag WHERE assertion = 'test_nudge'")[0][0]
    assert [add(service, "--flags", flag, "--as", "inv")["cases"][0]["state"] for _ in range(2)] == [
        "added",
        "present",
    ]
    shifted = add(
        service, "--flags", flag, "--as", "inv", "--perturb", "tabular.decimal_shift", "--field", "x"
    )
    assert shifted["cases"][0]["test"] == "same_answer_under_tabular.decimal_shift"
    outcomes = json.loads(
        outrider(service.config.parent, "test", "behavior", "--model", "model.py:predict", "--json").stdout
    )
    failures = {test["name"]: (test["kind"], test["failures"], test["cases"]) for test in outcomes["tests"]}
    assert failures.pop("same_answer_under_tabular.decimal_shift")[0] == "INV"
    assert failures == {
        "answers_where_too_high_fired": ("MFT", 1, 1),  # r0 is labelled 0, the model says 1
        "answers_to_reported_records": ("MFT", 0, 1),
        "test_nudge_on_incidents": ("INV", 1, 1),
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "outrider.pytest_plugin",
            "behavior",
            "--outrider-model",
            "model.py:predict",
        ],
        cwd=service.config.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "answers_where_too_high_fired" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1


def test_a_directional_live_test_keeps_its_direction(service: Service) -> None:
    flags = service.query("SELECT id FROM flag WHERE assertion = 'test_certainty'")
    to = service.config.parent / "own" / "mine.suite.json"
    found = add(service, "--flags", ",".join(flag for (flag,) in flags), "--as", "inv", "--to", str(to))
    assert {row["file"] for row in found["cases"]} == {str(to)}
    (test,) = json.loads(to.read_text(encoding="utf-8"))["tests"]
    assert test["kind"] == "DIR"
    assert test["capability"] == "order"
    assert test["expect"] == {"expect": "monotone", "field": "score", "direction": "increasing"}
    assert {case["source"]["model"] for case in test["cases"]} == {"toy"}


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_what_cannot_be_a_case_is_said(service: Service) -> None:
    flag = service.query("SELECT id FROM flag WHERE assertion = 'too_high' ORDER BY record_id")[0][0]
    (row,) = add(service, "--flags", flag, "--as", "inv", code=1)["refused"]
    assert "too_high is no live test" in row["reason"]
    (row,) = add(service, "--flags", flag, "--as", "inv", "--perturb", "text.typos", code=1)["refused"]
    assert "no input 'text'" in row["reason"]
    (row,) = add(service, "--flags", flag, "--as", "inv", "--perturb", "os.system", code=1)["refused"]
    assert "a perturbation of the library" in row["reason"]
    assert add(service, "--flags", "nope", code=1)["refused"][0]["reason"].startswith(
        "toy has no flag 'nope'"
    )
    done = outrider(service.config.parent, "test", "add", "--flags", "colour=red")
    assert done.returncode == 2
    before = incidents(service).read_bytes()
    assert (
        service.client.post(
            "/v1/suites/toy/cases", json={"flag": flag}, headers={"Authorization": "x"}
        ).status_code
        == 401
    )
    assert incidents(service).read_bytes() == before
