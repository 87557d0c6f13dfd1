"""Requests that nearly fit: unknown parameters, cursors that are none, HEAD, errors as pages."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.monitor.http.auth import KeyGate
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.routes import RouteScopes
from outrider.monitor.server.app import build_app
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from tests.asgi import get
from tests.databases import place_database
from tests.keyrings import keyring_in, owner_key
from tests.monitor.test_intake import ONE, Caller, write_config

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """The whole API, in process."""
    folder: Path = tmp_path_factory.mktemp("requests")
    settings = load_settings(write_config(folder))
    settings.data_folder.mkdir()
    place_database(settings.data_folder / "state.db")
    intake = ServerProcess(settings)
    intake.writer.start()
    intake.add_routers()
    yield Caller(intake)
    intake.close()


def documented(call: Caller) -> dict[str, Any]:
    document: dict[str, Any] = call("GET", "/openapi.json").json()["paths"]
    return {path: methods for path, methods in document.items() if path.startswith("/v1/")}


def test_every_route_of_the_api_tells_an_unknown_parameter(call: Caller) -> None:
    asked = 0
    for path, methods in documented(call).items():
        address = re.sub(r"\{\w+\}", "1", path)
        for method in methods:
            content = {"content": b"{}", "headers": {"content-type": "application/json"}}
            answer = call(method.upper(), f"{address}?unheard_of=1", **(content if method == "post" else {}))
            told = answer.status_code, answer.json().get("field")
            assert told == (422, "unheard_of"), f"{method} {path}: {answer.text}"
            asked += 1
    assert asked > 50


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/flags?modle=churn", "model"),
        ("/v1/flags?model=churn&asertion=x", "assertion"),
        ("/v1/label-requests?stauts=open", "status"),
        ("/v1/records?model=churn&afer=3", "after"),
    ],
)
def test_the_nearest_parameter_is_named(call: Caller, path: str, near: str) -> None:
    answer = call("GET", path)
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith(f"did you mean {near!r}?")


def test_pages_and_probes_ignore_unknown_parameters(call: Caller) -> None:
    for path in ("/m/churn", "/m/churn/flags", "/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert call("GET", f"{path}?utm_source=mail").status_code == 200, path


@pytest.mark.parametrize("route", ["/v1/records", "/v1/labels"])
@pytest.mark.parametrize(
    ("query", "said"),
    [("clok=own", "did you mean 'clock'?"), ("clock=onw", "?clock= is own"), ("x=1", "known here: clock")],
)
def test_senders_are_told_of_mistyped_parameters(call: Caller, route: str, query: str, said: str) -> None:
    body = ONE if route == "/v1/records" else {"model": "churn", "id": "a1", "label": {"label": 1}}
    answer = call("POST", f"{route}?{query}", json=body)
    assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text
    assert call("POST", f"{route}?clock=own", json=body).status_code == 202


@pytest.mark.parametrize(
    "path",
    [
        "/v1/flags?model=churn&after={}",
        "/v1/weak-labels?model=churn&after={}",
        "/v1/records?model=churn&after={}",
        "/m/churn/flags?after={}",
    ],
)
@pytest.mark.parametrize(
    "cursor",
    ["zzz", "-1", "1.2", "99999999999999999999.1.x", "1.99999999999999999999.x", "9" * 20, "²", "%00"],
)
def test_a_cursor_that_is_none_is_told(call: Caller, path: str, cursor: str) -> None:
    assert call("GET", path.format(cursor)).status_code == 422


def test_head_is_answered_wherever_get_is(call: Caller) -> None:
    pages = (
        "/",
        "/m/churn",
        "/m/churn/flags",
        "/docs",
        "/static/outrider.css",
        "/metrics",
        "/healthz",
        "/v2",
    )
    reads = [path for path, methods in documented(call).items() if "get" in methods and "{" not in path]
    assert len(reads) > 15
    for path in (*pages, *reads, "/healthz", "/readyz", "/openapi.json", "/nowhere"):
        got, head = call("GET", path), call("HEAD", path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        names = (
            ("content-type", "location")
            if path == "/metrics"
            else ("content-type", "content-length", "location")
        )
        assert [head.headers.get(n) for n in names] == [got.headers.get(n) for n in names], path
    assert call("HEAD", "/v1/flags", headers={"authorization": "Bearer no"}).status_code == 401
    assert call("HEAD", "/v1/retrains/x/none").status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/m/nope", 404),
        ("/m/churn/records/nope", 404),
        ("/m/churn/flags?after=x", 422),
        ("/assertions/churn/nope", 404),
    ],
)
def test_errors_of_pages_are_pages(call: Caller, path: str, status: int) -> None:
    page = call("GET", path, headers=BROWSER)
    assert page.status_code == status
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"] == HEADERS["content-security-policy"]
    assert "<h1>" in page.text
    form = {"content": b"flag=nope&is_error=1", "headers": BROWSER}
    assert "<h1>Not Found</h1>" in call("POST", "/reviews", **form).text
    of_program = call("GET", "/nowhere", headers={"accept": "application/json"})
    assert of_program.headers["content-type"] == "application/problem+json"


def test_paths_of_the_api_answer_browsers_with_problems_too(call: Caller) -> None:
    for path in ("/v1/nowhere", "/v1/flags?model=nope", "/v2/models/nope"):
        assert "json" in call("GET", path, headers=BROWSER).headers["content-type"], path


def test_page_whose_views_cannot_load_says_why(tmp_path: Path) -> None:
    scopes = RouteScopes()
    scopes.is_loading, scopes.load_fault = True, "the <disk> is gone"
    keyring = keyring_in(tmp_path)
    gate = KeyGate(build_app(fault=lambda: None), keyring, routes=scopes)
    page = get(gate, "/m/churn", headers=BROWSER | {"authorization": f"Bearer {owner_key(tmp_path)}"})
    assert (page.status_code, page.headers["retry-after"]) == (503, "1")
    assert "the &lt;disk&gt; is gone" in page.text
    assert get(gate, "/m/churn", headers=BROWSER | {"host": "localhost"}).status_code == 401
    keyring.close()
