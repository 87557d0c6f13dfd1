"""Outcomes that are published from outside: what is taken, what is refused with which field."""

import base64
import dataclasses
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from PIL import Image
from sqlalchemy import Engine

from outrider.behavioral_tests import Example, Outcome
from outrider.behavioral_tests.outcome import Measure
from outrider.dataops.improvement import suite_outcomes
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import LimitSettings
from outrider.monitor.views.suites.cases import cases_of
from outrider.monitor.views.suites.published import ExampleGiven, MeasureGiven, OutcomeGiven
from tests.asgi import request
from tests.databases import migrated
from tests.monitor.services import every_app

EXAMPLE = Example("c1", 1.0, {"text": "now"}, {"label": 1}, {"text": "was"}, {"label": 0}, {"label": 0}, 3)
MEASURE = Measure("gap", float("nan"), 0.0, 0.2, 90, "men - women")
OUTCOME = Outcome(
    name="test_x", kind="INV", capability="c", description="d", cases=40, failures=3, not_applicable=2,
    tolerance=0.05, rate=0.075, low=0.026, high=0.199, examples=(EXAMPLE,), suite="s", revision="abc",
    asked=80, planned=42, interval="sequence", confidence=0.99, measures=(MEASURE,), error="",
)  # fmt: skip


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = migrated(tmp_path / "state.db")
    yield engine
    engine.dispose()


@pytest.fixture
def app(engine: Engine, tmp_path: Path) -> FastAPI:
    settings = Settings(
        base=tmp_path,
        models={"m": ModelSettings(predictor="model.py:predict")},
        limits=LimitSettings(body_bytes=1_000_000),
    )
    return every_app(engine, settings=settings)


def publish(app: FastAPI, *outcomes: dict[str, Any], model: str = "m", **more: Any) -> tuple[int, Any]:
    body = {"version": "7", "source": "cli", "outcomes": outcomes, **more}
    answer = request(app, "POST", f"/v1/suites/{model}/outcomes", content=json.dumps(body).encode())
    return answer.status_code, answer.json()


def test_an_outcome_is_kept_as_it_was_sent(app: FastAPI, engine: Engine) -> None:
    assert publish(app, OUTCOME.to_dict()) == (201, {"model": "m", "version": "7", "kept": 1})
    with engine.connect() as connection:
        found = suite_outcomes.read_outcome(connection, "m", "7", "s", "test_x")
    assert found is not None
    assert found.pop("source") == "cli"
    del found["at_us"]
    assert found == OUTCOME.to_dict()


def test_the_newest_run_counts(app: FastAPI, engine: Engine) -> None:
    publish(app, OUTCOME.to_dict())
    mended = dataclasses.replace(OUTCOME, failures=0, rate=0.0, low=0.0, examples=())
    assert publish(app, mended.to_dict(), source="pytest")[0] == 201
    with engine.connect() as connection:
        (row,) = suite_outcomes.list_outcomes(connection, "m")
    assert (row.failures, row.source) == (0, "pytest")


@pytest.mark.parametrize(
    ("given", "kind"), [(ExampleGiven, Example), (MeasureGiven, Measure), (OutcomeGiven, Outcome)]
)
def test_every_field_of_an_outcome_is_known(given: Any, kind: Any) -> None:
    expected = {each.name for each in dataclasses.fields(kind)} - {"ran"}
    if kind is Outcome:
        expected |= {"status", "passed"}
    assert set(given.model_fields) == expected


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"cases": "40"}, "outcomes.0.cases", "valid integer"),
        ({"cases": 2}, "outcomes.0", "failures: at most 2 (cases) expected, got 3"),
        ({"rate": 0.5}, "outcomes.0", "rate: between low 0.026 and high 0.199 expected, got 0.5"),
        ({"rate": 0.08}, "outcomes.0", "rate: failures / cases = 0.075 expected"),
        ({"status": "passed"}, "outcomes.0", "status: failed by the figures, got passed"),
        ({"kind": "ABC"}, "outcomes.0.kind", "'MFT', 'INV' or 'DIR'"),
        ({"name": ""}, "outcomes.0.name", "at least 1 character"),
        ({"colour": 1}, "outcomes.0.colour", "Extra inputs are not permitted"),
        ({"low": float("nan")}, "outcomes.0.low", "finite number"),
        ({"examples": [{"id": "x"}]}, "outcomes.0.examples.0.severity", "Field required"),
        ({"examples": [Example("a" * 300_000, 1.0, {}, {})]}, "outcomes.0.examples.0.id", "at most 1000"),
        ({"description": "d" * 10_001}, "outcomes.0.description", "at most 10000"),
    ],
)
def test_a_wrong_field_is_named(app: FastAPI, engine: Engine, change: Any, field: str, reason: str) -> None:
    plain = OUTCOME.to_dict() | change
    plain["examples"] = [
        each if isinstance(each, dict) else dataclasses.asdict(each) for each in plain["examples"]
    ]
    status, body = publish(app, plain)
    assert status == 422
    assert body["errors"][0]["field"] == field
    assert reason in body["errors"][0]["reason"]
    with engine.connect() as connection:
        assert suite_outcomes.list_outcomes(connection, "m") == []


def test_requests_that_name_nothing_known_or_too_much_are_refused(app: FastAPI) -> None:
    plain = OUTCOME.to_dict()
    assert publish(app, plain, model="nope")[0] == 404
    assert publish(app)[1]["errors"][0]["field"] == "outcomes"
    assert publish(app, plain, source="gate")[1]["errors"][0]["field"] == "source"
    assert publish(app, plain, version="")[1]["errors"][0]["field"] == "version"
    status, body = publish(app, plain, plain | {"name": "test_y"}, plain)
    assert (status, body["errors"][0]["field"]) == (422, "outcomes.2.name")
    assert "s/test_x is given twice" in body["detail"]
    large = [plain | {"name": f"t{n}", "description": "d" * 10_000} for n in range(100)]
    assert publish(app, *large)[0] == 413
    heavy = {"id": "c", "severity": 1.0, "inputs": {"text": "t" * 270_000}, "outputs": {}}
    assert "at most 262144 bytes per outcome" in publish(app, plain | {"examples": [heavy]})[1]["detail"]
    answer = request(app, "POST", "/v1/suites/m/outcomes", content=b"{")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_pictures_must_be_small_pictures(app: FastAPI) -> None:
    def sent(data: bytes) -> tuple[int, Any]:
        image = {"tensor": "t", "shape": [8, 8], "png": base64.b64encode(data).decode()}
        example = {"id": "c", "severity": 1.0, "inputs": {"image": image}, "outputs": {}}
        return publish(app, OUTCOME.to_dict() | {"examples": [example]})

    def png(side: int) -> bytes:
        file = io.BytesIO()
        Image.new("L", (side, side)).save(file, "PNG")
        return file.getvalue()

    assert sent(png(64))[0] == 201
    for bad in (png(4000), png(64)[:40], b"<svg onload=alert(1)>", b""):
        status, body = sent(bad)
        assert status == 422
        assert "image.png: base64 of a PNG of at most 256 pixels a side expected" in body["detail"]


def test_names_with_slashes_are_found_by_their_address(app: FastAPI) -> None:
    given = OUTCOME.to_dict() | {"suite": "a/b", "name": "c/d"}
    assert publish(app, given, version="feature/x")[0] == 201
    answer = request(app, "GET", "/v1/suites/m/outcomes/feature%2Fx/a%2Fb/c%2Fd")
    assert answer.status_code == 200
    assert answer.json()["version"]["version"] == "feature/x"
    assert answer.json()["outcome"]["name"] == "c/d"
    assert request(app, "GET", "/v1/suites/m/outcomes/feature%2Fx/a%2Fb/c").status_code == 404


@pytest.mark.parametrize(
    ("version", "suite", "test", "field"),
    [
        ("..", "s", "t", "version"),
        ("1", "a/..", "t", "suite"),
        ("1", "s", "./t", "name"),
        ("1", "s", "", "name"),
    ],
)
def test_outcomes_under_names_that_no_address_holds_are_refused(
    app: FastAPI, version: str, suite: str, test: str, field: str
) -> None:
    given = OUTCOME.to_dict() | {"suite": suite, "name": test}
    status, body = publish(app, given, version=version)
    assert status == 422
    assert body["errors"][0]["field"].endswith(field)


@pytest.mark.parametrize("number", ["NaN", "1e999", "[1, [-Infinity]]"])
def test_what_is_no_number_is_refused(app: FastAPI, engine: Engine, number: str) -> None:
    """SQLite would find no field in the whole column any more."""
    plain = OUTCOME.to_dict()
    plain["examples"][0]["inputs"] = {"x": "NUMBER"}
    body = json.dumps({"version": "7", "source": "cli", "outcomes": [plain]}).replace('"NUMBER"', number)
    answer = request(app, "POST", "/v1/suites/m/outcomes", content=body.encode())
    assert answer.status_code == 422
    assert "outcomes.0.examples.0.inputs" in answer.json()["detail"]


@pytest.mark.parametrize(
    "value", [10**400, [1, 2, 3, 10**400], {"tensor": "", "shape": [], "line": [10**400] * 3}]
)
def test_numbers_beyond_all_floats_are_shown_as_they_are(app: FastAPI, engine: Engine, value: Any) -> None:
    example = dataclasses.replace(EXAMPLE, inputs={"x": value}, original_inputs={"x": 1})
    assert publish(app, dataclasses.replace(OUTCOME, examples=(example,)).to_dict())[0] == 201
    with engine.connect() as connection:
        found = suite_outcomes.read_outcome(connection, "m", "7", "s", "test_x")
    assert found is not None
    assert [field.name for case in cases_of(found) for field in case.inputs] == ["x"]
