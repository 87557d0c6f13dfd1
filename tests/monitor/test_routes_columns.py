"""Columns of a running intake: listed, dropped and learned anew, over restarts."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from typer.testing import CliRunner

from outrider.cli import app
from outrider.errors import NotFound, OutriderError

from .test_intake import Caller, running

HEALED = {"model": "churn", "inputs": {"age": 41}, "attrs": {"clinic": "north"}}
ODD = HEALED | {"attrs": {"clinic": True}}


def send(call: Caller, *records: dict[str, Any]) -> Any:
    return call("POST", "/v1/records", content=json.dumps(list(records)))


def columns(call: Caller, model: str = "churn") -> dict[str, Any]:
    found: dict[str, Any] = call("GET", f"/v1/columns?model={model}").json()
    return found


def named(call: Caller, name: str) -> Any:
    return next((one for one in columns(call)["columns"] if one["name"] == name), None)


def test_columns_are_listed_with_type_state_and_values(tmp_path: Path) -> None:
    with running(tmp_path, "[limits]\ncolumns = 3") as call:
        send(call, HEALED, HEALED, HEALED | {"attrs": {"clinic": None, "rare": 1, "more": 2}})
        found = columns(call)
        assert found["columns"] == [
            {"name": "inputs.age", "type": "int", "state": "open", "values": 3},
            {"name": "attrs.clinic", "type": "string", "state": "open", "values": 2},
            {"name": "attrs.rare", "type": "int", "state": "open", "values": 1},
            {"name": "attrs.__rest__", "type": "string", "state": "declared", "values": None},
        ]
        assert found["rare"] == [{"name": "attrs.more", "values": 1}]
        assert (found["used"], found["limit"]) == (3, 3)
        assert columns(call, "digits")["columns"] == [
            {"name": "inputs.image", "type": "tensor(2, 2)", "state": "declared", "values": None}
        ]
        assert call("GET", "/v1/columns?model=none").status_code == 404
        assert call("GET", "/v1/columns", headers={"authorization": ""}).status_code == 401


def test_settled_column_of_the_wrong_type_heals_by_forgetting_it(tmp_path: Path) -> None:
    with running(tmp_path) as call:
        assert send(call, *[ODD] * 1000).status_code == 202
        assert send(call, HEALED).status_code == 422
        assert named(call, "attrs.clinic")["state"] == "settled"
        body = {"model": "churn", "names": ["attrs.clinic"]}
        assert call("POST", "/v1/columns/forget", json=body).json() == {
            "model": "churn",
            "forgotten": ["attrs.clinic"],
        }
        assert named(call, "attrs.clinic") is None
    with running(tmp_path) as call:  # durable
        assert named(call, "attrs.clinic") is None
        assert send(call, HEALED).status_code == 202
    with running(tmp_path) as call:
        assert named(call, "attrs.clinic")["type"] == "string"
        assert send(call, HEALED, ODD).json()["accepted"] == 1


def test_declared_and_unknown_columns_cannot_be_forgotten(tmp_path: Path) -> None:
    with running(tmp_path) as call:
        for model, name, status in (("digits", "inputs.image", 422), ("churn", "attrs.x", 404)):
            body = {"model": model, "names": [name]}
            assert call("POST", "/v1/columns/forget", json=body).status_code == status


def test_weights_stand_where_they_stood_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as call:
        send(call, ODD)
        send(call, *[HEALED] * 600)
        assert named(call, "attrs.clinic")["type"] == "string"
    with running(tmp_path) as call:
        assert named(call, "attrs.clinic")["values"] >= 512  # noted at every doubling
        assert send(call, *[ODD] * 100).status_code == 422
        assert send(call, HEALED).status_code == 202


@contextmanager
def served(call: Caller) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    intake: Any = call.intake.app
    server = uvicorn.Server(uvicorn.Config(intake, log_config=None, ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def test_columns_command_lists_and_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as call:
        send(call, ODD)
        with served(call) as url:
            monkeypatch.chdir(tmp_path)
            monkeypatch.setenv("OUTRIDER_URL", url)
            monkeypatch.setenv("OUTRIDER_KEY", call.key)
            monkeypatch.setenv("COLUMNS", "120")
            run = CliRunner().invoke
            shown = run(app, ["columns", "churn"], catch_exceptions=False).stdout
            assert "attrs.clinic" in shown
            assert "2 of 512 columns" in shown
            listed = json.loads(run(app, ["columns", "list", "churn", "--json"]).stdout)
            assert listed == columns(call)
            dropped = ["columns", "forget", "attrs.clinic", "--model", "churn"]
            assert "forgotten attrs.clinic" in run(app, dropped).stdout
            assert named(call, "attrs.clinic") is None
            assert isinstance(run(app, dropped).exception, NotFound)
            declared = ["columns", "forget", "inputs.image", "--model", "digits", "--json"]
            assert isinstance(run(app, declared).exception, OutriderError)
