"""What shadow tests found: the API, the page and ``outrider report``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from playwright.sync_api import sync_playwright
from typer.testing import CliRunner

from outrider.cli import app as outrider
from outrider.commands import report as report_command
from outrider.monitor.server.local_server import LocalServer
from outrider.monitor.trainer.shadow_tests import ShadowTests
from tests.monitor.services import every_app
from tests.monitor.shadow_sample import MODEL, Stream, open_stream
from tests.monitor.test_routes_data import Client
from tests.requirements import require_program
from tests.soak import PATIENCE_S


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    made = open_stream(
        tmp_path_factory.mktemp("agreement"),
        wrong={"twin": 0.0, "half": 0.0, "worse": 0.1},
        limits=lambda version: {"shadow_rows": 3000} if version == "half" else {},
    )
    watch = ShadowTests(made.context)
    watch.look()
    made.feed(80)
    watch.look()
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture(scope="module")
def app(stream: Stream) -> FastAPI:
    return every_app(stream.engine, stream.journal, stream.settings)


@pytest.fixture
def client(app: FastAPI) -> Client:
    return Client(app)


def test_the_api_has_agreement_per_slice_with_reasons(client: Client) -> None:
    found = client.get(f"/v1/agreement?model={MODEL}").json()
    assert found["champion"] == "1"
    tests = {test["version"]: test for test in found["tests"]}
    assert set(tests) == {"twin", "half", "worse"}
    assert tests["half"]["recommendation"] == "promote"
    assert tests["half"]["ended"] is not None
    assert tests["twin"]["recommendation"] is None
    assert tests["twin"]["advice"] == "keep"
    rows = tests["worse"]["agreement"]
    assert {row["measure"] for row in rows} == {"label", "score", "rank"}
    assert {row["slice"] for row in rows} == {"", "till-1", "till-2", "<i>till-3"}
    assert all(row["beyond"]["low"] <= row["beyond"]["value"] <= row["beyond"]["high"] for row in rows)
    assert sum(tests["twin"]["score_distances"]["challenger"]) == tests["twin"]["records"]
    one = client.get(f"/v1/agreement?model={MODEL}&version=twin").json()
    assert [test["version"] for test in one["tests"]] == ["twin"]


def test_slips_are_told(client: Client) -> None:
    assert client.get("/v1/agreement?model=nobody").status_code == 404
    missing = client.get(f"/v1/agreement?model={MODEL}&version=9")
    assert (missing.status_code, "no shadow test of version '9'" in missing.text) == (404, True)


def test_the_page_says_the_verdict_first_and_has_the_rows_of_one_version_on_its_own(client: Client) -> None:
    page = client.get(f"/m/{MODEL}/agreement").text
    for text in (
        "Version worse is different: beyond noise in ",
        "Version twin answers the same as version 1: 4,000 records rule out a difference beyond noise of",
        "keep the champion",
        "promote",
        "margin 1.0 %",
    ):
        assert text in page
    assert page.count("<polygon points=") == 3
    for text in ("till-3", "/m/digits/records/r0", "<table"):
        assert text not in page
    assert page.count(f'hx-get="/m/{MODEL}/agreement?version=') == 3
    one = client.get(f"/m/{MODEL}/agreement?version=worse").text
    for text in ("Beyond noise", "&lt;i&gt;till-3", "/m/digits/records/r0", 'id="test-worse"'):
        assert text in one
    assert "<i>till" not in one
    assert 'id="test-half"' not in one
    moved = client.get(f"/models/{MODEL}/agreement")
    assert (moved.status_code, moved.headers["location"]) == (303, f"/m/{MODEL}/agreement")


def test_the_verdict_is_that_of_its_row_and_of_the_last_look(client: Client) -> None:
    for test in client.get(f"/v1/agreement?model={MODEL}").json()["tests"]:
        row, verdict, history = test["agreement"][0], test["verdict"], test["history"]
        assert (row["measure"], row["slice"]) == ("label", "")
        assert verdict["word"] == row["verdict"]
        assert f"{test['records']:,} records" in verdict["sentence"]
        assert [look["records"] for look in history] == sorted({look["records"] for look in history})
        last, beyond = history[-1], row["beyond"]
        assert last["records"] == test["records"]
        assert last == {"records": row["rows"]} | {
            "value": pytest.approx(1 - beyond["value"]),
            "low": pytest.approx(1 - beyond["high"]),
            "high": pytest.approx(1 - beyond["low"]),
        }


def test_a_browser_loads_the_rows_when_they_are_opened_and_keeps_them(app: FastAPI) -> None:
    chromium = require_program("chromium", "apt-get install -y chromium")
    with LocalServer(app) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.set_default_timeout(PATIENCE_S * 1000)
        said: list[str] = []
        tab.on("console", lambda message: said.append(message.text))
        tab.goto(f"{server.url}/m/{MODEL}/agreement")
        assert tab.evaluate("document.documentElement.scrollHeight") < 2000
        assert tab.evaluate("document.querySelectorAll('table').length") == 0
        tab.click("#test-worse > details > summary")
        tab.wait_for_selector("#test-worse table")
        with tab.expect_response(lambda answer: answer.url.endswith("/agreement")):
            pass  # the page refreshes itself, and leaves them
        tab.wait_for_selector("#test-worse td >> text=till-3")
        assert tab.evaluate("document.querySelector('#test-worse > details').open")
        assert tab.evaluate("document.querySelectorAll('#test-twin table').length") == 0
        browser.close()
    assert said == []


def test_a_model_without_challengers_says_how_to_get_one(client: Client, tmp_path: Path) -> None:
    empty = open_stream(tmp_path, wrong={})
    page = Client(every_app(empty.engine, empty.journal, models=(MODEL,)))
    assert "No challenger has run beside the champion yet" in page.get(f"/m/{MODEL}/agreement").text
    empty.engine.dispose()
    empty.journal.close()


class Service:
    """Answers a command as the service would."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, path: str, **query: Any) -> Any:
        if path == "/v1/models":
            return {"models": [{"model": MODEL}]}
        return self._client.get(f"{path}?model={query['model']}").json()


def test_outrider_report_shows_a_model_in_one_place(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_command, "connect", lambda _: Service(client))
    monkeypatch.setenv("COLUMNS", "160")  # narrower, names of slices are broken in two
    file = tmp_path / "report.html"
    said = CliRunner().invoke(outrider, ["report", MODEL, "--html", str(file)])
    assert said.exit_code == 0, said.output
    for text in (
        "champion 1",
        "half beside 1: promote",
        "Version half answers the same as",
        "till-3",
        "different",
        "same",
        "beyond noise",
    ):
        assert text in said.output
    html = file.read_text(encoding="utf-8")
    assert "<style>" in html
    assert "till-3" in html
    assert html.count("<polygon points=") == 3
    assert "http" not in html.replace("http://www.w3.org", "")
    found = json.loads(CliRunner().invoke(outrider, ["report", MODEL, "--json"]).stdout)
    assert {version["version"]: version["status"] for version in found["versions"]}["twin"] == "challenger"
    assert len(found["shadow_tests"]) == 3
