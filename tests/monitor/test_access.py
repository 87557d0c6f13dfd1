"""Scopes, quotas, the log and the login page of a server process with all its routes."""

import asyncio
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from outrider.dataops.access.scopes import SCOPES, Right, rights_of
from outrider.monitor.http.routes import INTAKES, ScopedRoute
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from tests.comparison_reports import report
from tests.databases import place_database
from tests.keyrings import link_of, logged_in, owner_key

CONFIG = """
[server]
port = 0
{server}
[storage]
min_free_bytes = 0
[models.churn]
predictor = "model.py:predict"
[models.other]
predictor = "model.py:predict"
"""
RECORD = {"model": "churn", "id": "a", "inputs": {"age": 41}}
FORM = {"content-type": "application/x-www-form-urlencoded"}
PAGE = {"accept": "text/html,application/xhtml+xml"}


class Server:
    """A server process with its routers, called without a socket."""

    def __init__(self, folder: Path, server: str = "") -> None:
        (folder / "outrider.toml").write_text(CONFIG.format(server=server))
        self.folder = folder / "outrider-data"
        self.folder.mkdir(exist_ok=True)
        place_database(self.folder / "state.db")
        self.process = ServerProcess(load_settings(folder / "outrider.toml"))
        self.process.writer.start()
        self.process.add_routers()
        self.owner = owner_key(self.folder)

    def ask(
        self,
        method: str,
        path: str,
        key: str = "",
        *,
        base: str = "http://localhost",
        client: tuple[str, int] = ("127.0.0.1", 1),
        **options: Any,
    ) -> httpx.Response:
        headers = ({"authorization": f"Bearer {key}"} if key else {}) | options.pop("headers", {})

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.process.app, client=client)
            async with httpx.AsyncClient(transport=transport, base_url=base) as browser:
                return await browser.request(method, path, headers=headers, **options)

        return asyncio.run(send())

    def make_key(self, name: str, *scopes: str, **limits: float | list[str]) -> str:
        body = {"name": name, "scopes": list(scopes)} | limits
        answer = self.ask("POST", "/v1/keys", self.owner, json=body)
        assert answer.status_code == 201, answer.text
        key: str = answer.json()["key"]
        return key

    def log(self) -> list[dict[str, Any]]:
        writes: list[dict[str, Any]] = self.ask("GET", "/v1/log", self.owner).json()["writes"]
        return writes


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.process.close()


def routes_of(server: Server) -> set[str]:
    """Every route of the application, those of pages too, as the table writes them."""
    found = {"GET /metrics"}
    api: Any = server.process._api

    def add(routes: Any) -> None:
        for route in routes:
            if (inner := getattr(route, "original_router", None)) is not None:
                add(inner.routes)
            else:
                found.update(f"{method} {route.path}" for method in route.methods or () if method != "HEAD")

    add(api.router.routes)
    return found


def test_every_route_has_a_scope_and_no_scope_is_of_a_route_that_is_not_there(server: Server) -> None:
    names = {re.sub(r"\{\w+", "{", route) for route in routes_of(server)}
    scoped = server.process._routes.routes
    table = {re.sub(r"\{\w+", "{", route.action) for route in scoped}
    assert len(names) > 90
    assert names - table == set()
    assert table - names == set()
    documented = server.process._api.openapi()["paths"]
    for path, methods in documented.items():
        for method in methods:
            assert server.process.gate._routes.find(method.upper(), path, {}) is not None, path
    assert {text for route in (*scoped, *INTAKES.values()) for text in needed(route)} <= set(SCOPES)
    intakes = {one.name for one, _ in server.process.gate._routes._intakes}
    assert intakes == set(INTAKES)


def needed(route: ScopedRoute) -> set[str]:
    """Scopes of a route, any one of which is enough."""
    return {text for scopes in route.needs for text in scopes}


def filled(route: str) -> tuple[str, str]:
    method, _, path = route.partition(" ")
    return method, re.sub(r"\{(\w+)(:path)?\}", "nothing", path)


def test_no_key_goes_beyond_its_scopes_on_any_route(server: Server) -> None:
    """Each key on every route: 403 that names scope and key where it may not, something else where it may."""
    keys: dict[Right, str] = {scope: server.make_key(f"k-{scope}", scope) for scope in SCOPES}
    asked = refused = 0
    for scoped in server.process._routes.routes:
        route, scopes = scoped.action, needed(scoped)
        method, path = filled(route)
        if not scopes or path in ("/v1/records", "/v1/labels") or "/logout" in path:
            continue
        for scope, key in keys.items():
            asked += 1
            answer = server.ask(
                method, path, key, headers={"content-type": "application/json"}, content=b"{}"
            )
            if rights_of([scope]) & scopes:
                assert answer.status_code != 403, (route, scope)
            else:
                assert answer.status_code == 403, (route, scope, answer.status_code)
                assert answer.json()["key"] == f"k-{scope}"
                assert answer.json()["scope"] == " or ".join(sorted(scopes))
                refused += 1
    assert asked > 500
    assert refused > 150


def test_key_of_a_model_reaches_no_other_model_on_any_route(server: Server) -> None:
    """Each route with the other model at each place where a request names one, and with none."""
    key = server.make_key("churn-admin", "admin", models=["churn"])
    json_body = {"content-type": "application/json"}
    opened: set[str] = set()
    closed: set[str] = set()
    routes = server.process._routes.routes
    for scoped in routes:
        route, place = scoped.action, scoped.place
        method, path = filled(route)
        if not scoped.needs or path == "/logout":
            continue
        if place == "records":  # each record names one: below
            continue
        of_other = path.replace("/nothing", "/other", 1) if place == "path" else path
        asked = [("", b"{}"), ("?model=other", b'{"model": "other"}'), ("?model=churn&model=other", b"")]
        for query, body in asked if place != "closed" else asked[:1]:
            answer = server.ask(method, of_other + query, key, headers=json_body, content=body)
            if place in ("none", "route"):
                assert answer.status_code != 403, route
            else:
                assert answer.status_code == 403, (route, query, answer.status_code)
        mine = re.sub(r"\{model\}", "churn", route.partition(" ")[2])
        mine = re.sub(r"\{(\w+)(:path)?\}", "nothing", mine) + ("?model=churn" if place == "query" else "")
        answer = server.ask(method, mine, key, headers=json_body, content=b'{"model": "churn"}')
        (closed if answer.status_code == 403 else opened).add(route)
    assert opened == {route.action for route in routes if route.place not in ("closed", "records")}
    assert len(opened) > 50
    assert {
        "GET /v1/keys",
        "POST /v1/keys",
        "GET /v1/log",
        "POST /v1/erasures",
        "GET /metrics",
        "GET /",
    } <= closed


def test_places_name_parameters_that_there_are(server: Server) -> None:
    paths = server.process._api.openapi()["paths"]
    for route in server.process._routes.routes:
        (method, _, path), place = route.action.partition(" "), route.place
        if place == "path":
            assert path.count("{model}") == 1
        if place == "query":
            asked = paths[path][method.lower()]["parameters"]
            assert "model" in {one["name"] for one in asked if one["in"] == "query"}, route


def test_records_and_labels_of_other_models_are_refused_whole(server: Server) -> None:
    key = server.make_key("churn-sender", "ingest", models=["churn"])
    other = RECORD | {"model": "other", "id": "b"}
    label = {"model": "churn", "id": "a", "label": {"label": 1}}
    assert server.ask("POST", "/v1/records", key, json=RECORD).status_code == 202
    assert server.ask("POST", "/v1/labels", key, json=label).status_code == 202
    for path, body in (
        ("/v1/records", other),
        ("/v1/records", [RECORD | {"id": "c"}, other]),
        ("/v1/records?model=churn", [other]),
        ("/v1/records?model=other", [{"id": "d", "inputs": {"age": 1}}]),
        ("/v1/labels", label | {"model": "other"}),
        ("/v1/labels", [label, label | {"model": "other"}]),
        (
            "/v2/models/other/infer",
            {"inputs": [{"name": "age", "shape": [1], "datatype": "INT64", "data": [1]}]},
        ),
    ):
        answer = server.ask("POST", path, key, json=body, headers={"x-outrider-mirror": "1"})
        assert answer.status_code in (403, 422), (path, answer.text)
    refused = server.ask("POST", "/v1/records", key, json=other)
    assert refused.json()["detail"] == "the key is for model churn alone, not other"
    for path in ("/v1/traces", "/v1/logs"):  # spans of one call may come by several keys
        assert server.ask("POST", path, key, json={"resourceSpans": []}).status_code == 403, path
    stored = {block.model for block in server.process.journal.read(0, limit=1000) if block.kind != "tick"}
    assert stored == {"churn"}


def test_key_of_a_model_goes_on_with_uploads_of_its_model_alone_and_opens_no_page(server: Server) -> None:
    key = server.make_key("ci", "promote", models=["churn"])
    listed = server.ask("GET", "/v1/keys", server.owner).json()["keys"]
    assert {one["name"]: one["models"] for one in listed} == {"owner": [], "ingest": [], "ci": ["churn"]}
    body = {"name": "x", "scopes": ["read"], "models": [".."]}
    assert server.ask("POST", "/v1/keys", server.owner, json=body).status_code == 422
    refused = log_in(server, key)
    assert (refused.status_code, "for some models alone" in refused.text) == (403, True)
    file = [{"name": "a.onnx", "bytes": 4, "sha256": "0" * 64}]
    wanted = {"kind": "onnx", "files": file}
    assert server.ask("POST", "/v1/models/other/versions", key, json=wanted).status_code == 403


def test_a_sender_can_send_and_nothing_else(server: Server) -> None:
    sender = (server.folder / "key.ingest").read_text().strip()
    assert server.ask("POST", "/v1/records", sender, json=RECORD).status_code == 202
    label = {"model": "churn", "id": "a", "label": {"label": 1}}
    assert server.ask("POST", "/v1/labels", sender, json=label).status_code == 202
    assert server.ask("GET", "/v2", sender).status_code == 200
    mirror = {"model": "churn", "messages": [{"role": "user", "content": "x"}]}
    sent = server.ask(
        "POST", "/v1/chat/completions", sender, json=mirror, headers={"x-outrider-mirror": "request"}
    )
    assert sent.status_code != 403
    refused = server.ask("POST", "/v1/models/churn/promote", sender, json={"version": "2"})
    assert refused.status_code == 403
    assert refused.json()["detail"] == "key 'ingest' lacks the scope promote"
    assert server.ask("GET", "/v1/records?model=churn", sender).status_code == 403
    labeller = server.make_key("ann", "label")
    assert server.ask("POST", "/v1/labels", labeller, json=label).status_code == 202
    assert server.ask("POST", "/v1/records", labeller, json=RECORD).status_code == 403
    reader = server.make_key("rea", "read")
    assert server.ask("POST", "/v1/labels", reader, json=label).status_code == 403


def test_changes_stand_in_the_log_with_the_key_that_asked(server: Server) -> None:
    anna = server.make_key("anna", "promote")
    assert server.ask("POST", "/v1/pauses", anna, json={"what": "shadow"}).status_code == 201
    assert server.ask("POST", "/v1/pauses", anna, json={"what": "nonsense"}).status_code == 422
    assert server.ask("POST", "/v1/keys", anna, json={"name": "x", "scopes": ["admin"]}).status_code == 403
    session = logged_in(server.process.keyring, anna)
    assert (
        server.ask("POST", "/v1/pauses/resume", headers=session, json={"what": "shadow"}).status_code == 200
    )
    server.ask("POST", "/v1/records", server.owner, json=RECORD)
    log = server.log()
    assert [(row["key"], row["action"], row["status"]) for row in log] == [
        ("anna", "POST /v1/pauses/resume", 200),
        ("anna", "POST /v1/pauses", 201),
        ("owner", "POST /v1/keys", 201),
    ]
    assert log[0]["session"]
    assert log[1]["session"] == ""
    assert {row["address"] for row in log} == {"127.0.0.1"}
    older = server.ask("GET", f"/v1/log?before={log[0]['id']}&limit=1&key=anna", server.owner).json()
    assert [row["id"] for row in older["writes"]] == [log[1]["id"]]
    assert older["before"] == log[1]["id"]


def test_a_running_comparison_is_in_the_log_with_its_begin_its_end_and_other_senders(server: Server) -> None:
    anna, path = server.make_key("anna", "promote"), "/v1/comparisons/0123456789abcdef"
    running = report() | {"ended": "running"}
    for key, body in (
        (anna, running),
        (anna, running | {"seconds": 2.0}),
        (anna, running | {"seconds": 3.0}),
    ):
        assert server.ask("PUT", path, key, json=body).status_code == 200
    assert [row["key"] for row in server.log() if row["path"] == path] == ["anna"]
    assert server.ask("PUT", path, server.owner, json=running).status_code == 200
    assert server.ask("PUT", path, anna, json=running).status_code == 200
    assert server.ask("PUT", path, anna, json=running).status_code == 200
    assert server.ask("PUT", path, anna, json=report()).status_code == 200
    assert [row["key"] for row in server.log() if row["path"] == path] == ["anna", "anna", "owner", "anna"]
    assert server.ask("PUT", path, anna, json=running).status_code == 422


def test_a_key_that_sends_too_much_is_told_when_to_come_again(server: Server) -> None:
    web = server.make_key("web", "ingest", records_per_s=0.1, burst_records=20)
    block = [RECORD | {"id": f"w{row}"} for row in range(25)]
    assert server.ask("POST", "/v1/records", web, json=block).status_code == 202  # into debt
    refused = server.ask("POST", "/v1/records", web, json=RECORD)
    assert refused.status_code == 429
    assert 30 < int(refused.headers["retry-after"]) <= 60
    assert refused.json()["limit"] == "records_per_s"
    assert refused.json()["key"] == "web"
    other = server.make_key("other", "ingest")
    assert server.ask("POST", "/v1/records", other, json=block).status_code == 202
    server.ask("POST", "/v1/keys/web/limits", server.owner, json={"bytes_per_day": 60})
    assert server.ask("POST", "/v1/records", web, json=RECORD).status_code == 202
    refused = server.ask("POST", "/v1/records", web, json=RECORD)
    assert refused.status_code == 429
    assert refused.json()["limit"] == "bytes_per_day"
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    metrics = server.ask("GET", "/metrics").text
    assert 'outrider_records_rejected_total{process="intake",reason="quota"} 2.0' in metrics
    facts = {key["name"]: key for key in server.ask("GET", "/v1/keys", server.owner).json()["keys"]}
    assert facts["web"]["bytes_per_day"] == 60
    assert 0 < facts["web"]["bytes_today"] <= 60


def test_keys_are_listed_without_secrets_and_wrong_ones_refused(server: Server) -> None:
    key = server.make_key("anna", "label", "ingest")
    listed = server.ask("GET", "/v1/keys", server.owner)
    assert key not in listed.text
    assert [one["name"] for one in listed.json()["keys"]] == ["owner", "ingest", "anna"]
    assert listed.json()["keys"][2]["scopes"] == ["label", "ingest"]
    for body, status in (
        ({"name": "anna", "scopes": ["read"]}, 409),
        ({"name": "owner", "scopes": ["read"]}, 409),
        ({"name": "x", "scopes": []}, 422),
        ({"name": "x", "scopes": ["root"]}, 422),
        ({"name": "", "scopes": ["read"]}, 422),
        ({"name": "a\nb", "scopes": ["read"]}, 422),
        ({"name": "x\n", "scopes": ["read"]}, 422),
        ({"name": "x", "scopes": ["read"], "records_per_s": -1}, 422),
        ({"name": "x", "scopes": ["read"], "bytes_per_day": 2**70}, 422),
    ):
        assert server.ask("POST", "/v1/keys", server.owner, json=body).status_code == status, body
    assert server.ask("POST", "/v1/keys/owner/revoke", server.owner).status_code == 409
    assert server.ask("POST", "/v1/keys/nobody/revoke", server.owner).status_code == 404
    assert server.ask("POST", "/v1/keys/anna/revoke", server.owner).json()["revoked_by"] == "owner"
    assert server.ask("GET", "/v1/models", key).status_code == 401
    listed = server.ask("GET", "/v1/keys?revoked=true", server.owner)
    assert [one["name"] for one in listed.json()["keys"] if one["revoked"]] == ["anna"]


def test_a_browser_without_a_session_sees_the_login_and_comes_back_to_its_page(server: Server) -> None:
    wanted = "/m/churn/flags?level=critical"
    page = server.ask("GET", wanted, headers=PAGE)
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert page.headers["www-authenticate"].startswith("Bearer")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert '<form method="post" action="/login">' in page.text
    assert "<script" not in page.text
    assert f'name="next" value="{wanted.replace("&", "&amp;")}"' in page.text
    for asset in re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text):
        assert server.ask("GET", asset).status_code == 200, asset
    assert server.ask("GET", wanted).headers["content-type"] == "application/problem+json"
    reader = server.make_key("anna", "read")
    answer = log_in(server, reader, wanted)
    assert (answer.status_code, answer.headers["location"]) == (303, wanted)
    cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert "Secure" not in answer.headers["set-cookie"]
    assert server.ask("GET", wanted, headers=PAGE | cookie).status_code == 200
    assert server.ask("GET", "/login", headers=PAGE | cookie).headers["location"] == "/"
    token = re.search(
        r'name="csrf_token" value="([^"]+)"', server.ask("GET", "/sessions", headers=cookie).text
    )
    assert token is not None
    form = cookie | FORM
    assert server.ask("POST", "/logout", headers=form, content="x=1").status_code == 403
    out = server.ask("POST", "/logout", headers=form, content=f"csrf_token={token[1]}")
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert server.ask("GET", wanted, headers=cookie).status_code == 401


def log_in(server: Server, key: str, wanted: str = "/", **options: Any) -> httpx.Response:
    content = f"key={quote(key)}&next={quote(wanted, safe='')}"
    headers = FORM | options.pop("headers", {})
    return server.ask("POST", "/login", headers=headers, content=content, **options)


def test_the_login_leads_to_no_other_site_and_takes_no_form_of_another(server: Server) -> None:
    for wanted in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/a\r\nb: c"):
        answer = log_in(server, server.owner, wanted)
        assert (answer.status_code, answer.headers["location"]) == (303, "/"), wanted
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = log_in(server, server.owner, headers=headers)
        assert answer.status_code == 403, headers
        assert "set-cookie" not in answer.headers
    fine = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert log_in(server, server.owner, headers=fine).status_code == 303
    assert log_in(server, "x" * 9000).status_code == 413
    many = server.ask("POST", "/login", headers=FORM, content="&".join(f"a{n}=1" for n in range(11)))
    assert (many.status_code, many.headers["content-type"]) == (422, "application/problem+json")
    hostile = '/m/<script>alert(1)</script>?a="><img src=x onerror=alert(1)>'
    page = server.ask("GET", "/m/x", headers=PAGE, params={"a": hostile}).text
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_failed_attempts_to_log_in_are_bounded_per_address(server: Server) -> None:
    statuses = [log_in(server, "or_guess").status_code for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    waits = log_in(server, server.owner)
    assert waits.status_code == 429  # who guesses waits, whatever the next guess is
    assert 0 < int(waits.headers["retry-after"]) <= 60
    assert use_link(server, "guess").status_code == 429
    assert log_in(server, server.owner, client=("10.0.0.9", 1)).status_code == 303
    assert server.ask("GET", "/v1/models", server.owner).status_code == 200


def use_link(server: Server, token: str, **headers: str) -> httpx.Response:
    return server.ask("POST", "/login", headers=FORM | headers, content=f"token={token}")


def test_link_is_used_by_its_button_alone(server: Server) -> None:
    """Previews of messages, prefetching browsers and scanners of mail GET and HEAD what they see."""
    link = link_of(server.process.keyring, server.owner)
    for method in ("GET", "HEAD", "GET"):
        page = server.ask(method, f"/login?token={link}", headers=PAGE | {"sec-purpose": "prefetch"})
        assert (page.status_code, page.headers["cache-control"]) == (200, "no-store")
        assert "set-cookie" not in page.headers
    assert page.headers["referrer-policy"] == "same-origin"
    assert "<script" not in page.text
    assert 'name="key"' not in page.text
    assert f'<input type="hidden" name="token" value="{link}">' in page.text
    assert use_link(server, link, origin="http://evil.example").status_code == 403
    assert use_link(server, link, **{"sec-fetch-site": "cross-site"}).status_code == 403
    opened = use_link(server, link, origin="http://localhost")
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    assert "HttpOnly" in opened.headers["set-cookie"]
    hostile = server.ask("GET", "/login", params={"token": '"><script>alert(1)</script>'})
    assert "<script" not in hostile.text


def test_a_used_or_unknown_link_says_what_to_do_and_a_sender_gets_no_page(server: Server) -> None:
    link = link_of(server.process.keyring, server.owner)
    assert use_link(server, link).status_code == 303
    again = use_link(server, link)
    assert again.status_code == 401
    assert "outrider login" in again.text
    assert "set-cookie" not in again.headers
    sender = (server.folder / "key.ingest").read_text().strip()
    refused = log_in(server, sender)
    assert refused.status_code == 403
    assert "may send, not read" in refused.text


def test_sessions_are_seen_and_ended_by_their_key_and_by_admins(server: Server) -> None:
    anna, ben = server.make_key("anna", "read"), server.make_key("ben", "read")
    keyring = server.process.keyring
    of_anna, of_ben = logged_in(keyring, anna, agent="<b>fox</b>"), logged_in(keyring, ben)
    seen = server.ask("GET", "/v1/sessions", anna).json()["sessions"]
    assert [one["key"] for one in seen] == ["anna"]
    everybody = server.ask("GET", "/v1/sessions", server.owner).json()["sessions"]
    assert {one["key"] for one in everybody} == {"anna", "ben"}
    ben_id = next(one["id"] for one in everybody if one["key"] == "ben")
    assert server.ask("POST", f"/v1/sessions/{ben_id}/end", anna).status_code == 404
    page = server.ask("GET", "/sessions", headers=PAGE | of_anna).text
    assert "this one" in page
    assert "&lt;b&gt;fox" in page
    assert ben_id not in page
    assert server.ask("POST", f"/sessions/{ben_id}/end", headers=of_anna | FORM).status_code == 404
    assert server.ask("GET", "/", headers=of_ben).status_code == 200
    assert server.ask("POST", f"/v1/sessions/{ben_id}/end", server.owner).status_code == 200
    assert server.ask("GET", "/", headers=of_ben).status_code == 401
    refused = server.ask("POST", "/m/churn/proposals/learn", headers=of_anna | FORM | PAGE)
    assert (refused.status_code, refused.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "lacks the scope promote" in refused.text


def test_cookies_are_secure_behind_a_configured_proxy_with_tls(tmp_path: Path) -> None:
    server = Server(tmp_path, 'names = ["outrider.example"]\ntrusted_proxies = ["10.0.0.0/8"]')
    said = {"x-forwarded-proto": "https", "x-forwarded-for": "9.9.9.9"}
    base = "http://outrider.example"
    of_proxy = log_in(server, server.owner, base=base, client=("10.1.1.1", 1), headers=said)
    assert "; Secure" in of_proxy.headers["set-cookie"]
    assert "; Secure" not in log_in(server, server.owner, base=base, headers=said).headers["set-cookie"]
    sessions = server.ask("GET", "/v1/sessions", server.owner).json()["sessions"]
    assert {one["address"] for one in sessions} == {"9.9.9.9", "127.0.0.1"}
    assert server.ask("GET", "/login", base="http://evil.example").status_code == 421
    server.process.close()


ODD_PATHS = (
    "//v1/keys", "/v1/keys/", "/v1//keys", "/V1/KEYS", "/v1/keys%20", "/v1/keys%00", "/v1/keys;x=1",
    "/v1/./keys", "/m/x/../../v1/keys", "/static/../v1/keys", "/static/%2e%2e/v1/keys",
    "/healthz/../v1/keys",
    "/v1/labels/../keys", "/v2/models/../../v1/keys", "/login/../v1/keys", "/v1/%6b%65%79%73/x/../",
)  # fmt: skip


def test_no_odd_path_leads_a_reader_or_a_stranger_to_the_keys(server: Server) -> None:
    reader = server.make_key("anna", "read", "ingest")
    override = {"x-http-method-override": "GET", "x-original-url": "/v1/keys", "x-rewrite-url": "/v1/keys"}
    for asked in itertools.product(("GET", "HEAD", "POST", "PUT", "OPTIONS"), ODD_PATHS, (reader, "")):
        answer = server.ask(*asked, headers=override)
        assert answer.status_code in (400, 401, 403, 404, 405), asked
        assert '"scopes"' not in answer.text, asked


def test_a_session_is_ended_by_its_button(server: Server) -> None:
    anna = server.make_key("anna", "read")
    here, there = (logged_in(server.process.keyring, anna) for _ in range(2))
    page = server.ask("GET", "/sessions", headers=PAGE | here).text
    actions = re.findall(r'action="(/sessions/\w+/end)"', page)
    assert len(actions) == 2
    for action in actions:
        form = f"csrf_token={here['x-csrf-token']}"
        ended = server.ask("POST", action, headers={"cookie": here["cookie"]} | FORM, content=form)
        if ended.status_code == 401:  # its own was the first
            break
        assert (ended.status_code, ended.headers["location"]) == (303, "/sessions")
    assert 401 in {server.ask("GET", "/sessions", headers=one).status_code for one in (here, there)}
    assert server.log()[0]["action"] == "POST /sessions/{session}/end"


def test_a_number_that_the_database_cannot_hold_is_refused(server: Server) -> None:
    for path in (
        "/v1/records?model=churn&after={}",
        "/v1/datasets/x/versions/{}",
        "/v1/datasets/x/versions/{}/rows",
        "/v1/datasets/x/diff?old=1&new={}",
    ):
        assert server.ask("GET", path.format(2**63), server.owner).status_code == 422, path
        assert server.ask("GET", path.format(2**63 - 1), server.owner).status_code in (204, 404), path
