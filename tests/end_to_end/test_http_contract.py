"""What a stranger, a careless client and a browser get from the running service."""

import gzip
import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.soak import PATIENCE_S, promised

from .service import CONFIG, Service, outrider, wait_until, write_project

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
LINES = {"content-type": "application/x-ndjson"}
OPEN = {"/healthz", "/readyz", "/metrics", "/login", "/v2/health/live", "/v2/health/ready"}
PAGES = (
    "/",
    "/m/toy",
    "/m/toy/flags",
    "/m/toy/lineage",
    "/m/toy/retrains",
    "/m/toy/datasets",
    "/m/toy/records/a",
    "/m/toy/images/records/inputs.x/a",
    "/m/toy/images/flags/f/x",
    "/compare",
    "/compare/0123456789abcdef",
    "/static/page.css",
    "/openapi.json",
    "/docs",
    "/static/vendor/swagger-ui.css",
    "/nowhere",
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(write_project(tmp_path_factory.mktemp("contract"))) as running:
        wait_until(lambda: "/v1/flags" in openapi(running)["paths"], "the whole API", running)
        yield running


def openapi(service: Service) -> dict[str, Any]:
    document: dict[str, Any] = service.client.get("/openapi.json").json()
    return document


def stranger(service: Service, **more: Any) -> httpx.Client:
    return httpx.Client(base_url=service.client.base_url, timeout=PATIENCE_S, **more)


def record(key: str, x: object = 0.7, **more: object) -> dict[str, Any]:
    return {"model": "toy", "id": key, "inputs": {"x": x}, "attrs": {"device": "a"}, **more}


def send(service: Service, body: object, path: str = "/v1/records", **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return service.client.post(path, content=content, headers=headers or {"content-type": "application/json"})


def arrow(columns: dict[str, list[Any]], model: str = "toy") -> bytes:
    table = pa.table(columns).replace_schema_metadata({"outrider.model": model})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def judged(service: Service, keys: set[str]) -> None:
    """Wait until all of these records are judged."""

    def there() -> bool:
        marks = ",".join("?" * len(keys))
        return len(service.query(f"SELECT id FROM record WHERE id IN ({marks})", *keys)) == len(keys)

    wait_until(there, f"verdicts on {sorted(keys)}", service)


def is_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Members of a problem response."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail"} <= set(body)
    assert body["status"] == status
    assert body["detail"]
    return body


def test_without_a_key_every_route_but_the_probes_answers_401(service: Service) -> None:
    asked = 0
    with stranger(service) as client:
        for path, methods in openapi(service)["paths"].items():
            plain = re.sub(r"\{[^}]*\}", "1", path)
            for method in methods:
                answer = client.request(method, plain)
                if path in OPEN:
                    assert answer.status_code == 200, f"{method} {path}: {answer.status_code}"
                    continue
                asked += 1
                is_problem(answer, 401)
                assert answer.headers["www-authenticate"].startswith("Bearer")
        for path in PAGES:
            is_problem(client.get(path), 401)
        assert client.get("/metrics").status_code == 200
        is_problem(client.get("/m/toy", headers={"authorization": "Bearer or_wrong"}), 401)
        is_problem(client.get("/m/toy", headers={"cookie": "outrider=1.2.3"}), 401)
        is_problem(client.post("/v1/records", json=[record("stranger")]), 401)
        is_problem(client.post("/metrics/../v1/records", json=[record("stranger")]), 401)
    assert asked > 20


def test_with_metrics_open_false_the_metrics_need_the_key(tmp_path: Path) -> None:
    config = CONFIG.replace("port = 0", "port = 0\nmetrics_open = false")
    with Service(write_project(tmp_path, config=config)) as keyed, stranger(keyed) as client:
        is_problem(client.get("/metrics"), 401)
        assert client.get("/healthz").status_code == 200
        assert b"outrider_build_info" in keyed.client.get("/metrics").content


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


BAD_RECORDS: dict[str, tuple[str, str, str]] = {
    "unknown field": ('{"model": "toy", "id": "bad", "input": {"x": 1}}', "input", "inputs"),
    "unknown model": ('{"model": "toi", "id": "bad", "inputs": {"x": 1}}', "model", "toy"),
    "wrong type": ('{"model": "toy", "id": "bad", "inputs": {"x": "high"}}', "inputs.x", "float"),
    "wrong shape": ('{"model": "toy", "id": "bad", "inputs": [1]}', "inputs", "object"),
    "not a number": ('{"model": "toy", "id": "bad", "inputs": {"x": NaN}}', "inputs.x", "finite"),
    "infinity": ('{"model": "toy", "id": "bad", "inputs": {"x": 1e999}}', "inputs.x", "finite"),
    "nested": (
        f'{{"model": "toy", "id": "bad", "inputs": {{"deep": {json.dumps(nested(20))}}}}}',
        "inputs.deep",
        "limits.depth",
    ),
    "label": ('{"model": "toy", "id": "bad", "inputs": {"x": 1}, "label": {"label": 1}}', "label", "labels"),
    "time": ('{"model": "toy", "id": "bad", "ts": "yesterday", "inputs": {"x": 1}}', "ts", "yesterday"),
    "list": ("[1, 2]", "", "object"),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_bad_record_is_named_with_field_and_index_and_its_neighbours_are_judged(
    service: Service, name: str
) -> None:
    text, field, said = BAD_RECORDS[name]
    good = [f"{name}-{number}" for number in range(2)]
    first, last = (json.dumps(record(key)) for key in good)
    answer = send(service, f"[{first}, {text}, {last}]".encode())
    assert answer.status_code == 202, answer.text
    assert answer.json()["accepted"] == 2
    (rejected,) = answer.json()["rejected"]
    assert (rejected["index"], rejected["id"]) == (1, None if name == "list" else "bad")
    assert rejected["field"].startswith(field)
    assert said in rejected["reason"]
    alone = is_problem(send(service, f"[{text}]".encode()), 422)
    assert alone["accepted"] == 0
    assert alone["rejected"][0]["reason"] == rejected["reason"]
    assert field in alone["detail"]
    assert "record 0" in alone["detail"]
    judged(service, set(good))


def test_a_number_that_is_none_is_refused_in_arrow_too_and_its_neighbours_are_judged(
    service: Service,
) -> None:
    keys = [f"arrow-{number}" for number in range(3)]
    body = arrow({"id": keys, "inputs.x": [0.7, float("nan"), 0.2], "attrs.device": ["a"] * 3})
    answer = send(service, body, **ARROW)
    assert answer.json()["accepted"] == 2, answer.text
    (rejected,) = answer.json()["rejected"]
    assert (rejected["index"], rejected["id"], rejected["field"]) == (1, keys[1], "inputs.x")
    assert "finite" in rejected["reason"]
    judged(service, {keys[0], keys[2]})
    strange = arrow({"id": ["w"], "inputs.x": [True]})
    assert is_problem(send(service, strange, **ARROW), 422)["rejected"][0]["field"] == "inputs.x"


GOOD = arrow({"id": ["t"], "inputs.x": [0.5]})
BODIES: dict[str, tuple[Callable[[], bytes], dict[str, str], int, str]] = {
    "11 MB": (lambda: b'[{"model":"toy","id":"' + b"a" * 11_000_000 + b'"}]', {}, 413, "limits.body_bytes"),
    "gzip bomb": (
        lambda: gzip.compress(b" " * 300_000_000),
        {"content-encoding": "gzip"},
        413,
        "limits",
    ),
    "not gzip": (lambda: b"[]", {"content-encoding": "gzip"}, 400, "gzip"),
    "half a gzip": (lambda: gzip.compress(b"[]" * 9)[:-9], {"content-encoding": "gzip"}, 400, "truncated"),
    "unknown encoding": (lambda: b"[]", {"content-encoding": "br"}, 415, "br"),
    "half an Arrow stream": (lambda: GOOD[: len(GOOD) // 2], ARROW, 400, "truncated"),
    "Arrow without its end": (lambda: GOOD[:-8], ARROW, 400, "truncated"),
    "Arrow with a hole": (lambda: GOOD[:64] + GOOD[80:], ARROW, 400, "Arrow"),
    "Arrow of another column": (lambda: arrow({"id": ["t"], "input.x": [0.5]}), ARROW, 400, "inputs.x"),
    "not JSON": (lambda: b'[{"model": "toy",]', {}, 400, "at byte"),
    "not UTF-8": (lambda: b'[{"model": "toy", "id": "\xff"}]', {}, 400, "UTF-8"),
    "100,000 brackets": (lambda: b"[" * 100_000, {}, 400, "limits.depth"),
    "a type of its own": (lambda: b"<records/>", {"content-type": "text/xml"}, 415, "application/json"),
    "nothing": (lambda: b"", {}, 400, "JSON"),
    "no records": (lambda: b"[]", {}, 422, "no records"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_gets_a_clear_error_at_once_and_takes_nothing_else_along(
    service: Service, name: str
) -> None:
    make, headers, status, said = BODIES[name]
    content = make()
    began = time.monotonic()
    answer = service.client.post(
        "/v1/records", content=content, headers={"content-type": "application/json"} | headers
    )
    assert said in is_problem(answer, status)["detail"]
    assert time.monotonic() - began < promised(5)
    assert send(service, [record(f"after-{name}")]).status_code == 202
    judged(service, {f"after-{name}"})


def test_of_json_lines_only_the_bad_one_is_refused(service: Service) -> None:
    lines = [json.dumps(record("l0")), "{nonsense", json.dumps(record("l2")), "", '{"id": "l3"}']
    answer = send(service, "\n".join(lines).encode(), **LINES)
    assert answer.status_code == 202
    assert answer.json()["accepted"] == 2
    first, second = answer.json()["rejected"]
    assert (first["index"], second["index"]) == (1, 3)
    assert "malformed JSON" in first["reason"]
    assert (second["id"], second["field"]) == ("l3", "model")
    judged(service, {"l0", "l2"})


def test_a_duplicate_counts_once_and_of_a_conflict_the_first_stands(service: Service) -> None:
    before = {name: service.count(name) for name in ("duplicates", "conflicts", "records")}
    assert send(service, [record("twin", 0.95), record("twin", 0.95)]).json()["accepted"] == 2
    assert send(service, [record("twin", 0.95), record("twin", 0.1), record("single", 0.2)]).is_success
    judged(service, {"twin", "single"})
    wait_until(
        lambda: service.count("duplicates") == before["duplicates"] + 2, "two duplicates counted", service
    )
    assert service.count("conflicts") == before["conflicts"] + 1
    assert service.count("records") == before["records"] + 2
    flagged = service.query(
        "SELECT assertion FROM flag WHERE record_id = 'twin' AND assertion = 'too_high' AND slot = 'champion'"
    )
    assert flagged == [("too_high",)]
    letters = service.query("SELECT reason FROM dead_letter WHERE record_id = 'twin'")
    assert letters == [("conflict",)]
    shown = service.client.get("/v1/records/toy/twin").json()
    assert shown["record"]["inputs"]["x"] == 0.95


def test_a_label_may_come_before_its_record_and_more_than_once(service: Service) -> None:
    early = [
        {"model": "toy", "id": "early", "label": {"label": value}, "source": "human"} for value in (0, 1)
    ]
    assert send(service, early, "/v1/labels").json()["accepted"] == 2
    wait_until(
        lambda: len(service.query("SELECT 1 FROM label WHERE record_id = 'early'")) == 2, "labels", service
    )
    assert send(service, [record("early")]).is_success
    judged(service, {"early"})
    shown = service.client.get("/v1/records/toy/early").json()
    assert [label["value"] for label in shown["labels"]] in (["0", "1"], ["1", "0"])
    wrong = [{"model": "toy", "id": "early", "label": {}}, {"model": "toy", "label": {"label": 1}}]
    refused = is_problem(send(service, wrong, "/v1/labels"), 422)
    assert [bad["field"] for bad in refused["rejected"]] == ["label", "id"]


def generated_models(document: dict[str, Any], folder: Path) -> ModuleType:
    """Models that a generator of clients makes of an OpenAPI document."""
    (folder / "openapi.json").write_text(json.dumps(document))
    options = (
        "--input openapi.json --input-file-type openapi --output outrider_models.py --no-formatters "
        "--output-model-type pydantic_v2.BaseModel --target-python-version 3.11 --disable-timestamp"
    )
    program = [sys.executable, "-m", "datamodel_code_generator", *options.split()]
    subprocess.run(program, cwd=folder, check=True, timeout=120)
    return importlib.import_module("outrider_models")


def test_a_generated_client_reads_what_the_service_answers(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    models = generated_models(openapi(service), tmp_path)
    typed = models.RecordEnvelope(**record("typed", 0.95)).model_dump(mode="json", exclude_none=True)
    sent = send(service, [typed, record("odd", "high")])
    taken = models.Taken.model_validate_json(sent.content)
    assert (taken.accepted, [bad.id for bad in taken.rejected]) == (1, ["odd"])
    judged(service, {"typed"})
    client = service.client
    flags = models.FlagList.model_validate_json(client.get("/v1/flags", params={"model": "toy"}).content)
    assert {flag.model for flag in flags.flags} == {"toy"}
    stored = models.StoredRecord.model_validate_json(client.get("/v1/records/toy/typed").content)
    assert stored.record["inputs"]["x"] == 0.95
    assert {flag.assertion for flag in stored.flags} >= {"too_high"}
    overviews = models.Overviews.model_validate_json(client.get("/v1/overview").content)
    assert overviews.models[0].records > 0
    wanted = models.PauseWanted(what="live-tests", model="toy", who="a client")
    made = client.post(
        "/v1/pauses", content=wanted.model_dump_json(), headers={"content-type": "application/json"}
    )
    assert models.Pause.model_validate_json(made.content).since.tzinfo is not None
    ended = client.post("/v1/pauses/resume", json={"what": "live-tests", "model": "toy"})
    assert [pause.who for pause in models.Resumed.model_validate_json(ended.content).pauses] == ["a client"]
    refused = client.get("/v1/flags", params={"model": "toi"})
    assert "toy" in models.Problem.model_validate_json(refused.content).detail


def test_queries_name_the_parameter_that_is_wrong(service: Service) -> None:
    client = service.client
    assert "toy" in is_problem(client.get("/v1/flags", params={"model": "toi"}), 404)["detail"]
    assert "limit" in is_problem(client.get("/v1/retrains", params={"limit": 0}), 422)["detail"]
    is_problem(client.get("/v1/records/toy/never"), 404)
    is_problem(client.get("/v1/datasets/none/versions/1"), 404)
    is_problem(client.get("/nowhere"), 404)
    is_problem(client.put("/v1/records", json=[]), 405)
    is_problem(client.post("/v1/models/toy/rollback", json={"raeson": "x"}), 422)
    body = is_problem(client.post("/v1/retrains", json={"model": "toy"}), 409)
    assert body["field"] == "model"


def test_the_one_time_link_opens_the_page_once_and_forms_need_their_token(service: Service) -> None:
    found = re.search(r"http://\S+(/login\?token=\S+)", service.log.read_text(encoding="utf-8"))
    assert found is not None
    with stranger(service) as browser, stranger(service) as thief:
        token = found[1].partition("token=")[2]
        assert thief.get(found[1]).status_code == 200  # a preview of the message with the link
        opened = browser.post("/login", data={"token": token})
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        page = browser.get("/", follow_redirects=True)
        assert page.status_code == 200
        assert "default-src" in page.headers["content-security-policy"]
        assert thief.post("/login", data={"token": token}).status_code == 401
        assert thief.post("/login", data={"token": "1.2.3"}).status_code == 401
        is_problem(thief.get("/"), 401)
        wanted = {"model": "toy", "budget": 0}
        refused = is_problem(browser.post("/v1/label-requests", json=wanted), 403)
        assert "csrf_token" in refused["detail"]
        is_problem(browser.post("/v1/records", json=[record("forged")]), 403)
        is_problem(browser.post("/v1/label-requests", json=wanted, headers={"x-csrf-token": "guess"}), 403)
        assert browser.get("/v1/flags", params={"model": "toy"}).status_code == 200
    assert service.query("SELECT id FROM record WHERE id IN ('forged', 'stranger')") == []


def test_traffic_from_now_on_is_recorded(service: Service, tmp_path: Path) -> None:
    send(service, record("recorded-before"))
    with ThreadPoolExecutor(1) as pool:
        out = tmp_path / "traffic.parquet"
        asked = pool.submit(
            service.run_command, "record", "--out", str(out), "--records", "2", "--minutes", "4"
        )
        at = 0
        while not asked.done():
            send(service, record(f"recorded-{at}"))
            at += 1
            time.sleep(0.05)
        assert asked.result()["records"] == 2
    found = pyarrow.parquet.read_table(out).to_pydict()
    assert len(found["id"]) == 2
    assert "recorded-before" not in found["id"]
    assert found["inputs.x"] == [0.7, 0.7]


def test_no_traffic_is_an_exit_code_of_its_own(service: Service, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="5"):
        service.run_command("record", "--out", str(tmp_path / "none.jsonl"), "--minutes", "0.001")
    assert not (tmp_path / "none.jsonl").exists()


def compared(
    service: Service, *more: str, each_time: Callable[[], None] = lambda: None
) -> "subprocess.CompletedProcess[str]":
    """Comparison of the records that come meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            outrider, service.config.parent, "compare", "--model", "toy", "--candidate", "model.py:predict",
            "--target", "label", "--deterministic", "--json", *more,
        )  # fmt: skip
        at = 0
        while not asked.done():
            sent = []
            for number in range(10):
                outputs = {"label": int(number > 5), "score": abs(number / 10 - 0.5) + 0.5}
                sent.append(record(f"compared-{at}-{number}-{len(more)}", number / 10, outputs=outputs))
            send(service, sent)
            each_time()
            at += 1
            time.sleep(0.1)
        return asked.result()


def test_records_of_the_service_are_compared_with_a_candidate(service: Service) -> None:
    done = compared(service, "--margin", "0.2")
    assert done.returncode == 0, done.stderr
    [candidate] = json.loads(done.stdout)["candidates"]
    assert candidate["verdict"] == "same"
    [kept] = service.client.get("/v1/comparisons").json()["comparisons"]
    assert (kept["model"], kept["candidates"][0]["sentence"]) == ("toy", candidate["sentence"])
    assert f"/compare/{kept['id']}" in done.stderr
    assert candidate["sentence"] in service.client.get(f"/compare/{kept['id']}").text


def test_a_running_comparison_is_shown_live_under_its_last_address(service: Service) -> None:
    before = {each["id"] for each in service.client.get("/v1/comparisons").json()["comparisons"]}
    seen: list[str] = []
    pages: list[str] = []

    def watch() -> None:
        for each in service.client.get("/v1/comparisons").json()["comparisons"]:
            if each["id"] not in before and each["ended"] == "running":
                seen.append(each["id"])
                pages.append(service.client.get(f"/compare/{each['id']}").text)

    done = compared(service, "--until", "8s", each_time=watch)
    [id_] = set(seen)
    assert any("Last heard of" in page for page in pages)
    assert f"/compare/{id_}" in done.stderr.partition("live: ")[2].partition("\n")[0]
    assert service.client.get(f"/v1/comparisons/{id_}").json()["report"] == json.loads(done.stdout)


def test_a_key_that_may_only_read_gets_its_verdict_and_keeps_none(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = service.client.post("/v1/keys", json={"name": "reader", "scopes": ["read"]})
    before = service.client.get("/v1/comparisons").json()
    monkeypatch.setenv("OUTRIDER_KEY", made.json()["key"])
    done = compared(service, "--until", "20")
    assert json.loads(done.stdout)["records"]["asked"] == 20
    assert done.returncode == 6
    assert "The service does not show this comparison" in done.stderr
    assert "key 'reader' lacks the scope promote" in done.stderr
    assert service.client.get("/v1/comparisons").json() == before
