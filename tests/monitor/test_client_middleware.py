"""The middlewares: the service answers as without them, and what it answered arrives."""

import asyncio
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.middleware.gzip import GZipMiddleware

from outrider.monitor import client as module
from outrider.monitor.client import Client, OutriderMiddleware, OutriderWsgiMiddleware

from .receiver import Receiver, nothing_is_left

__all__ = ["nothing_is_left"]  # a fixture, for every test here


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def client(receiver: Receiver) -> Iterator[Client]:
    client = Client(receiver.url, "key", model="churn", version="3")
    yield client
    client.close(timeout=1)


def service() -> FastAPI:
    app = FastAPI()

    @app.post("/predict")
    async def predict(request: Request) -> Any:
        body = await request.json()
        if "about" in body:
            request.scope["outrider"].update(entity=7, attrs={"plan": "gold"})
        if body.get("age", 0) < 0:
            return Response("no", 422)
        if body.get("age") == 99:
            raise RuntimeError("broken")
        return {"score": body.get("age", 0) / 100, "seen": request.scope.get("outrider", {}).get("id", "")}

    @app.post("/stream")
    async def stream(request: Request) -> StreamingResponse:
        size = len(await request.body())
        return StreamingResponse((f"{part} of {size}\n" for part in range(3)), media_type="text/plain")

    return app


def ask(app: Any, path: str, **options: Any) -> httpx.Response:
    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            return await http.post(path, **options)

    return asyncio.run(call())


def check_balance(client: Client) -> None:
    c = client.counts
    assert c.offered == c.sampled_out + c.shed + c.error + c.acknowledged + c.queued


def test_a_request_and_its_answer_become_one_record(receiver: Receiver, client: Client) -> None:
    plain = service()
    app = OutriderMiddleware(plain, paths=["/predict"], client=client, entity_header="x-user")
    headers = {"x-request-id": "r9", "x-user": "u7"}
    answer = ask(app, "/predict", content=b'{\r\n "age": 41}', headers=headers)
    assert answer.json() == {"score": 0.41, "seen": "r9"}
    assert client.flush()
    [record] = receiver.records
    assert record.pop("ts")
    assert record == {
        "model": "churn", "id": "r9", "version": "3", "entity": "u7",
        "inputs": {"age": 41}, "outputs": {"score": 0.41, "seen": "r9"},
    }  # fmt: skip


def test_the_answer_is_that_of_the_service_alone(client: Client) -> None:
    plain = service()
    app = OutriderMiddleware(plain, paths=["/predict", "/stream"], client=client)
    headers = {"x-request-id": ""}
    for path, body in (("/stream", b"abc"), ("/predict", b'{"age": -1}'), ("/missing", b"")):
        with_, without = (ask(one, path, content=body, headers=headers) for one in (app, plain))
        assert (with_.status_code, with_.content, with_.headers) == (
            without.status_code, without.content, without.headers
        )  # fmt: skip


def test_the_service_may_say_who_it_was_and_answer_with_the_id(receiver: Receiver, client: Client) -> None:
    app = OutriderMiddleware(service(), paths=["/predict"], client=client)
    seen = ask(app, "/predict", json={"age": 1, "about": True}).json()["seen"]
    assert client.flush()
    [record] = receiver.records
    assert (record["id"], record["entity"], record["attrs"]) == (seen, "7", {"plan": "gold"})


def test_only_success_is_captured(client: Client) -> None:
    app = OutriderMiddleware(service(), paths=["/predict"], client=client)
    assert ask(app, "/predict", json={"age": -1}).status_code == 422
    assert ask(app, "/predict", json={"age": 99}).status_code == 500
    assert client.counts.offered == 0


def test_bodies_of_other_types_are_captured_as_they_are(receiver: Receiver, client: Client) -> None:
    app = OutriderMiddleware(service(), paths=["/stream"], client=client)
    ask(app, "/stream", content=b"\x89PNG...", headers={"content-type": "image/png"})
    assert client.flush()
    [record] = receiver.records
    assert record["inputs"] == {"body": {"$part": 0, "media_type": "image/png"}}
    assert record["outputs"] == {"body": "0 of 7\n1 of 7\n2 of 7\n"}
    assert receiver.parts == [[b"\x89PNG..."]]


def test_compressed_answers_are_read(receiver: Receiver, client: Client) -> None:
    packed = GZipMiddleware(service(), minimum_size=1)
    app = OutriderMiddleware(packed, paths=["/predict"], client=client)
    answer = ask(app, "/predict", json={"age": 50}, headers={"x-request-id": "r1"})
    assert answer.headers["content-encoding"] == "gzip"
    assert client.flush()
    assert receiver.records[0]["outputs"] == {"score": 0.5, "seen": "r1"}


def test_a_body_that_inflates_too_much_or_is_no_json_is_an_error(client: Client) -> None:
    bomb = gzip.compress(b" " * 3_000_000)
    for body, about in ((bomb, ("application/json", "gzip")), (b"{", ("application/json", ""))):
        exchange = module._Exchange(client, 1_000_000, "", "")
        exchange.sides[0].describe(*about)
        exchange.sides[0].see(body)
        exchange.status = 200
        exchange.capture()
    assert client.flush()
    assert client.counts.error == 2
    check_balance(client)


def test_numbers_that_are_not_finite_become_null(receiver: Receiver, client: Client) -> None:
    app = OutriderMiddleware(service(), paths=["/predict"], client=client)
    ask(app, "/predict", content=b'{"age": 1, "x": [NaN, 1e999]}')
    assert client.flush()
    [record] = receiver.records
    assert record["inputs"] == {"age": 1, "x": [None, None]}


def test_a_body_over_the_limit_is_shed_and_holds_no_memory(client: Client) -> None:
    app = OutriderMiddleware(service(), paths=["/stream"], client=client, max_bytes=100)
    held = module._memory.held
    assert ask(app, "/stream", content=b"x" * 101).content.startswith(b"0 of 101")
    assert client.counts.shed == client.counts.offered == 1
    assert module._memory.held == held


def test_requests_under_way_count_into_the_bound_of_memory(client: Client) -> None:
    exchanges = [module._Exchange(client, 5_000_000, "", "") for _ in range(6)]
    for exchange in exchanges:
        exchange.sides[0].see(bytes(2_500_000))
        exchange.status = 200
    assert [exchange.is_whole for exchange in exchanges] == [True] * 3 + [False] * 3
    assert module._memory.held <= module.RING_BYTES
    for exchange in exchanges[1:]:
        exchange.capture()
        exchange.release()
    assert client.counts.shed == 3
    exchanges[0].release()
    client.flush()


def test_bodies_are_sampled_by_entity_and_always_if_reads_them_in_the_sender(receiver: Receiver) -> None:
    threads: set[str] = set()

    def high(inputs: Any, outputs: Any) -> bool:
        import threading

        threads.add(threading.current_thread().name)
        return bool(outputs["score"] > 0.9)

    client = Client(receiver.url, "key", model="churn", rate=0.5, always_if=high)
    app = OutriderMiddleware(service(), paths=["/predict"], client=client)
    for age in (50, 95):
        for number in range(30):
            ask(app, "/predict", json={"age": age}, headers={"x-request-id": f"{age}-{number}"})
    assert client.flush()
    scores = [record["outputs"]["score"] for record in receiver.records]
    assert scores.count(0.95) == 30
    assert 0 < scores.count(0.5) < 30
    assert {r.get("weight", 1.0) for r in receiver.records if r["outputs"]["score"] == 0.95} == {1.0}
    assert {r["weight"] for r in receiver.records if r["outputs"]["score"] == 0.5} == {2.0}
    assert client.counts.sampled_out == 60 - len(scores)
    assert threads == {"outrider-client"}
    check_balance(client)
    client.close()


def test_a_disabled_client_leaves_the_service_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_DISABLED", "1")
    app = OutriderMiddleware(service(), paths=["/predict"], client=Client(model="churn"))
    assert ask(app, "/predict", json={"age": 10}).json() == {"score": 0.1, "seen": ""}


# ---- WSGI --------------------------------------------------------------------------------------------------


def wsgi_service(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/lines":
        lines = [*iter(lambda: environ["wsgi.input"].readline(), b"")]
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (line for line in lines)
    if environ["PATH_INFO"] == "/write":
        write = start_response("200 OK", [("Content-Type", "application/json")])
        write(b'{"a":')
        return iter([b"1}"])
    body = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    if body["age"] == 99:
        raise RuntimeError("broken")
    if "outrider.about" in environ:
        environ["outrider.about"]["attrs"] = {"plan": "gold"}
    start_response("200 OK" if body["age"] >= 0 else "422 No", [("Content-Type", "application/json")])
    return [json.dumps({"score": body["age"] / 100}).encode()]


def ask_wsgi(app: Any, path: str, body: bytes, **environ: str) -> tuple[str, bytes]:
    request: dict[str, Any] = {}
    setup_testing_defaults(request)
    request |= {
        "REQUEST_METHOD": "POST", "PATH_INFO": path, "CONTENT_LENGTH": str(len(body)), "SCRIPT_NAME": "",
        "QUERY_STRING": "",        "wsgi.input": io.BytesIO(body), "CONTENT_TYPE": "application/json",
    } | environ  # fmt: skip
    seen: list[str] = []
    written = io.BytesIO()

    def start_response(status: str, headers: Any, failure: Any = None) -> Callable[[bytes], object]:
        seen.append(status)
        return written.write

    # The validator holds the middleware to PEP 3333, on both of its sides where the service keeps to it too.
    chunks = app(request, start_response)
    try:
        content = b"".join(chunks)
    finally:
        if hasattr(chunks, "close"):
            chunks.close()
    return seen[-1], written.getvalue() + content


def test_a_wsgi_service_is_captured(receiver: Receiver, client: Client) -> None:
    app = validator(
        OutriderWsgiMiddleware(
            validator(wsgi_service), paths=["/predict"], client=client, entity_header="x-user"
        )
    )
    status, content = ask_wsgi(app, "/predict", b'{"age": 41}', HTTP_X_REQUEST_ID="r9", HTTP_X_USER="u7")
    assert (status, json.loads(content)) == ("200 OK", {"score": 0.41})
    assert client.flush()
    [record] = receiver.records
    assert record.pop("ts")
    assert record == {
        "model": "churn", "id": "r9", "version": "3", "entity": "u7", "attrs": {"plan": "gold"},
        "inputs": {"age": 41}, "outputs": {"score": 0.41},
    }  # fmt: skip


def test_wsgi_lines_writes_and_lists_go_on_unchanged(receiver: Receiver, client: Client) -> None:
    app = OutriderWsgiMiddleware(wsgi_service, paths=["/lines", "/write", "/predict"], client=client)
    assert ask_wsgi(app, "/lines", b"a\nb\n", CONTENT_TYPE="text/csv") == ("200 OK", b"a\nb\n")
    assert ask_wsgi(app, "/write", b"{}") == ("200 OK", b'{"a":1}')
    environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": "/predict", "CONTENT_LENGTH": "9"}
    chunks = app(environ | {"wsgi.input": io.BytesIO(b'{"age":5}')}, lambda *_: print)
    assert chunks == [b'{"score": 0.05}'], "a list stays a list: servers take Content-Length from it"
    assert client.flush()
    lines, written, predicted = receiver.records
    assert (lines["inputs"], lines["outputs"]) == ({"body": "a\nb\n"}, {"body": "a\nb\n"})
    assert written["outputs"] == {"a": 1}
    assert "inputs" not in written, "the service did not read its body"
    assert predicted["outputs"] == {"score": 0.05}


def test_wsgi_errors_pass_and_are_not_captured(client: Client) -> None:
    app = OutriderWsgiMiddleware(wsgi_service, paths=["/predict"], client=client)
    with pytest.raises(RuntimeError, match="broken"):
        ask_wsgi(app, "/predict", b'{"age": 99}')
    assert ask_wsgi(app, "/predict", b'{"age": -1}')[0] == "422 No"
    assert client.counts.offered == 0
