"""Shadow targets as proxies and real clients meet them: V2 and chat completions, in process through ASGI."""

import asyncio
import base64
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import numpy as np
import openai
import pyarrow as pa
import pytest

from outrider.assertions.batch import Batch
from outrider.errors import ConfigError
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.protocols.mirror import is_mirrored
from outrider.monitor.intake.protocols.otlp.forms import is_read
from outrider.monitor.intake.protocols.otlp.matching import Matcher, Named
from outrider.monitor.intake.protocols.request_models import RequestModels
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.intake.trusted_networks import KeylessWrites
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings

RECORDED = json.loads((Path(__file__).parent / "recorded" / "tritonclient.json").read_text(encoding="utf-8"))
BODIES = {one["name"]: (base64.b64decode(one["body"]), one["header_length"]) for one in RECORDED["requests"]}
MIRRORED = {"host": "models.internal-shadow:8080"}
CONFIG = """
[server]
port = 0
[storage]
min_free_bytes = 0
{more}
[models.churn]
predictor = "model.py:predict"
[models.churn.intake]
entity_header = "x-user"
[models.image]
predictor = "model.py:predict"
[models.image.columns]
"inputs.pixels" = "tensor(2, 2)"
[models.late]
[models.support.intake]
answers = "replica"
request_models = ["gpt-4o", "meta-llama/*"]
"""


class Target:
    """An intake in process, with and without its key."""

    def __init__(self, intake: ServerProcess) -> None:
        self.intake = intake
        self.folder = intake.settings.data_folder
        self.key = (self.folder / "key").read_text(encoding="utf-8").strip()

    def post(self, path: str, body: Any, *, peer: str | None = None, **headers: str) -> httpx.Response:
        """POST with the headers of a mirrored request, with the key unless it comes from a ``peer``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        allowed = {} if peer else {"authorization": f"Bearer {self.key}"}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("POST", path, content, MIRRORED | allowed | named, peer=peer)

    def call(
        self, method: str, path: str, content: bytes, headers: dict[str, str], *, peer: str | None = None
    ) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.intake.app, client=(peer or "127.0.0.1", 5000))
            async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
                return await client.request(method, path, content=content, headers=headers)

        return asyncio.run(send())

    def rows(self, model: str) -> list[dict[str, Any]]:
        """Records of a model in the journal."""
        return [row for block in self.blocks(model) for row in block.to_records()]

    def blocks(self, model: str) -> list[Batch]:
        """Blocks of a model in the journal."""
        with sqlite3.connect(f"file:{self.folder / 'journal.db'}?mode=ro", uri=True) as journal:
            payloads = journal.execute(
                "SELECT payload FROM block WHERE kind = 'records' AND model = ? ORDER BY seq", (model,)
            ).fetchall()
        tables = [pa.ipc.open_stream(payload).read_all() for (payload,) in payloads]
        return [Batch.from_arrow(batch) for table in tables for batch in table.to_batches()]


@contextmanager
def running(folder: Path, more: str = "") -> Iterator[Target]:
    path = folder / "outrider.toml"
    path.write_text(CONFIG.format(more=more), encoding="utf-8")
    intake = ServerProcess(load_settings(path))
    intake.writer.start()
    try:
        yield Target(intake)
    finally:
        intake.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with running(tmp_path) as made:
        yield made


def infer(target: Target, name: str, **headers: str) -> httpx.Response:
    body, length = BODIES[name]
    told = {} if length is None else {"inference_header_content_length": str(length)}
    return target.post("/v2/models/churn/infer", body, **(told | headers))


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("binary floats", {"x": [0.5, 0.75]}),
        ("floats as JSON", {"x": [0.5, 0.75]}),
        ("several datatypes", {"x": [0.5, 0.75], "age": 42, "member": False, "half": 1.5, "text": ""}),
        ("binary and JSON together", {"x": [0.5, 0.75], "age": 42}),
        ("texts as JSON", {"text": "grün"}),
        ("a sequence with parameters", {"x": [0.5, 0.75]}),
        ("requested outputs", {"x": [0.5, 0.75]}),
    ],
)
def test_requests_recorded_from_tritonclient_become_records(
    target: Target, name: str, inputs: dict[str, Any]
) -> None:
    answer = infer(target, name, x_request_id="q")
    assert (answer.status_code, answer.json()) == (200, {"model_name": "churn", "outputs": [], "id": "q"})
    rows = target.rows("churn")
    assert [row["id"] for row in rows] == ["q:0", "q:1", "q:2"]
    assert rows[1]["inputs"] == inputs
    assert rows[1].get("outputs") in (None, {})


def test_sequence_and_parameters_of_tritonclient_are_entity_and_attributes(target: Target) -> None:
    assert infer(target, "a sequence with parameters").status_code == 200
    assert [(row["id"], row["entity"], row["attrs"]) for row in target.rows("churn")] == [
        (f"r2:{row}", "42", {"region": "eu"}) for row in range(3)
    ]


def test_a_compressed_request_is_the_same(target: Target) -> None:
    import gzip
    import zlib

    body, length = BODIES["binary floats"]
    for encoding, packed in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body))):
        answer = target.post(
            "/v2/models/churn/infer",
            packed,
            content_encoding=encoding,
            inference_header_content_length=str(length),
            x_request_id=encoding,
        )
        assert answer.status_code == 200
    assert [row["inputs"]["x"] for row in target.rows("churn")] == [[0, 0.25], [0.5, 0.75], [1, 1.25]] * 2


def test_ids_go_by_precedence_and_come_back(target: Target) -> None:
    one = {"id": "body", "inputs": [{"name": "age", "shape": [1], "datatype": "INT64", "data": [41]}]}
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    told = [
        target.post("/v2/models/churn/infer", one, **headers).headers["x-outrider-id"]
        for headers in (
            {"x_request_id": "envoy", "ce_id": "event", "traceparent": trace},
            {"ce_id": "event", "traceparent": trace},
            {"traceparent": trace},
        )
    ]
    del one["id"]
    told.append(target.post("/v2/models/churn/infer", one, traceparent=trace).headers["x-outrider-id"])
    new = target.post("/v2/models/churn/infer", one).headers["x-outrider-id"]
    assert told == ["envoy", "event", "body", "4bf92f3577b34da6a3ce929d0e0e4736"]
    assert [row["id"] for row in target.rows("churn")] == [*told, new]
    assert new[14] == "7"


def test_a_request_that_is_no_copy_is_told_that_nobody_answers_here(target: Target) -> None:
    body, _ = BODIES["floats as JSON"]
    for path in ("/v2/models/churn/infer", "/v1/chat/completions", "/v1/completions"):
        answer = target.post(path, body, host="models.internal")
        assert answer.status_code == 421
        assert "Outrider is no model server" in answer.json()["detail"]
    assert target.post("/v2/models/churn/infer", body, host="x", x_outrider_mirror="1").status_code == 200


def test_errors_have_the_member_that_clients_of_the_protocol_show(target: Target) -> None:
    body, _ = BODIES["floats as JSON"]
    for host in ("models.internal", "a-shadow"):  # nobody answers here; no such model
        infer = target.post("/v2/models/nobody/infer", body, host=host).json()
        assert infer["error"] == infer["detail"]
        asked = {"model": "nobody", "messages": [{"role": "user", "content": "hi"}]}
        chat = target.post("/v1/chat/completions", json.dumps(asked).encode(), host=host).json()
        assert chat["error"]["message"] == chat["detail"]


@pytest.mark.parametrize(
    ("host", "mirrored"),
    [
        ("a-shadow", True), ("a-shadow:80", True), ("A-SHADOW", True), ("[::1]-shadow", True), ("a", False),
        ("", False), ("a-shadow.b", False), ("a:80-shadow", True), ("shadow", False),
    ],
)  # fmt: skip
def test_the_suffix_stands_before_any_port(host: str, mirrored: bool) -> None:
    assert is_mirrored({"host": host}) is mirrored


def test_secrets_of_production_are_nowhere(target: Target) -> None:
    body, _ = BODIES["floats as JSON"]
    with_key = {"authorization": f"Bearer {target.key}", "cookie": "session=hunter2", "x-api-key": "hunter2"}
    assert target.call("POST", "/v2/models/churn/infer", body, MIRRORED | with_key).status_code == 200
    target.intake.close()
    stored = b"".join(path.read_bytes() for path in target.folder.glob("journal.db*"))
    assert b"hunter2" not in stored
    assert target.key.encode() not in stored


def test_a_header_of_secrets_cannot_be_the_entity(tmp_path: Path) -> None:
    path = tmp_path / "outrider.toml"
    path.write_text('[models.m.intake]\nentity_header = "Authorization"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="Authorization carries a secret"):
        load_settings(path)


def test_the_entity_comes_from_a_header(target: Target) -> None:
    assert infer(target, "binary floats", x_user="u7").status_code == 200
    assert {row["entity"] for row in target.rows("churn")} == {"u7"}
    assert infer(target, "binary floats", x_user="u" * 257).status_code == 422


def test_paths_may_have_a_prefix_a_version_and_names_with_slashes(target: Target) -> None:
    body, _ = BODIES["floats as JSON"]
    for path in ("/seldon/ns/x/v2/models/churn/infer", "/v2/models/churn/versions/3/infer"):
        answer = target.post(path, body)
        assert (answer.status_code, answer.json()["model_name"]) == (200, "churn")
    assert target.post("/v2/models/meta-llama/tiny/infer", body).status_code == 200
    assert {row.get("version") for row in target.rows("churn")} == {None}  # the replica's own version answers


def test_an_unknown_model_is_named_with_what_to_do(target: Target) -> None:
    answer = target.post("/v2/models/churm/infer", BODIES["floats as JSON"][0])
    assert answer.status_code == 422
    assert "no model under watch is called 'churm'" in answer.json()["detail"]
    assert "request_models" in answer.json()["detail"]


def test_rows_that_do_not_fit_are_refused_alone(target: Target) -> None:
    values = np.ones((3, 2), dtype=np.float32)
    values[1, 0] = np.inf
    head = json.dumps(
        {
            "inputs": [
                {"name": "x", "shape": [3, 2], "datatype": "FP32", "parameters": {"binary_data_size": 24}}
            ]
        }
    ).encode()
    answer = target.post(
        "/v2/models/churn/infer",
        head + values.tobytes(),
        inference_header_content_length=str(len(head)),
        x_request_id="q",
    )
    assert answer.status_code == 200
    assert answer.json()["parameters"]["rejected"] == 1
    assert "record 1: inputs.x" in answer.json()["parameters"]["reason"]
    assert [row["id"] for row in target.rows("churn")] == ["q:0", "q:2"]


def test_a_raw_body_is_the_only_input(target: Target) -> None:
    pixels = np.arange(8, dtype=np.float32)
    answer = target.post("/v2/models/image/infer", pixels.tobytes(), inference_header_content_length="0")
    assert answer.status_code == 200
    assert [row["inputs"]["pixels"] for row in target.rows("image")] == pixels.reshape(2, 2, 2).tolist()
    refused = target.post("/v2/models/churn/infer", b"1234", inference_header_content_length="0")
    assert (refused.status_code, "declare it alone" in refused.json()["detail"]) == (422, True)


def test_clients_find_health_and_metadata(target: Target) -> None:
    with_key = {"authorization": f"Bearer {target.key}"}
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert target.call("GET", path, b"", {}).status_code == 200
    for path in (
        "/v2",
        "/v2/models/churn",
        "/v2/models/churn/ready",
        "/v2/models/meta-llama/x/versions/1/ready",
    ):
        assert target.call("GET", path, b"", {}).status_code == 401
        assert target.call("GET", path, b"", with_key).status_code == 200
    assert target.call("GET", "/v2/models/image", b"", with_key).json() == {
        "name": "image", "versions": ["1"], "platform": "outrider_shadow",
        "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 2, 2]}], "outputs": [],
    }  # fmt: skip
    missing = target.call("GET", "/v2/models/none", b"", with_key)
    assert (missing.status_code, "none" in missing.json()["error"]) == (404, True)


MESSAGES: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Was wächst hier?"}]},
]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@contextmanager
def openai_client(target: Target) -> Iterator[openai.AsyncOpenAI]:
    yield openai.AsyncOpenAI(
        api_key=target.key,
        base_url="http://models.internal-shadow/v1",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=httpx2.ASGITransport(target.intake.app)),
    )


def test_the_openai_client_gets_an_empty_completion_and_the_call_is_a_record(target: Target) -> None:
    async def ask() -> Any:
        with openai_client(target) as client:
            return await client.chat.completions.create(
                model="gpt-4o", messages=MESSAGES, tools=TOOLS, temperature=0, user="u7",
                extra_headers={"x-request-id": "c1"},
            )  # fmt: skip

    answer = asyncio.run(ask())
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("", "stop")
    assert (answer.id, answer.model) == ("c1", "gpt-4o")
    [row] = target.rows("support")
    assert (row["id"], row["entity"]) == ("c1", "u7")
    assert row["inputs"] == {
        "prompt": "Was wächst hier?",
        "system": "Be brief.",
        "messages": '[{"content":"Be brief.","role":"system"},'
        '{"content":[{"text":"Was wächst hier?","type":"text"}],"role":"user"}]',
        "tools": '[{"function":{"name":"look","parameters":{"type":"object"}},"type":"function"}]',
    }
    assert row["attrs"] == {"request_model": "gpt-4o", "temperature": 0.0}
    assert row.get("outputs") in (None, {})


def test_the_openai_client_streams_to_the_end(target: Target) -> None:
    async def ask() -> tuple[list[Any], list[Any]]:
        with openai_client(target) as client:
            chat = await client.chat.completions.create(model="gpt-4o", messages=MESSAGES, stream=True)
            chunks = [chunk async for chunk in chat]
            text = await client.completions.create(model="meta-llama/tiny", prompt="Once", stream=True)
            return chunks, [chunk async for chunk in text]

    chunks, texts = asyncio.run(ask())
    assert [(chunk.choices[0].delta.content, chunk.choices[0].finish_reason) for chunk in chunks] == [
        ("", "stop")
    ]
    assert [(chunk.choices[0].text, chunk.choices[0].finish_reason) for chunk in texts] == [("", "stop")]
    assert [row["attrs"]["stream"] for row in target.rows("support")] == [True, True]
    assert [row["inputs"]["prompt"] for row in target.rows("support")] == ["Was wächst hier?", "Once"]


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (b"", 400, "malformed JSON"),
        (b"[]", 400, "a JSON object expected, got list"),
        (b'{"model": "gpt-4o"}', 400, "messages: a list of at least one message expected"),
        (b'{"model": "gpt-4o", "messages": []}', 400, "messages"),
        (b'{"model": "other", "messages": [{"role": "user", "content": "x"}]}', 422, "'other'"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', 422, "no model under watch is called ''"),
        (b'{"model": 7, "messages": [1, null, {"role": [], "content": {}}]}', 422, "''"),
        (b'{"model": "gpt-4o", "user": "' + b"u" * 300 + b'", "messages": [1]}', 422, "entity: 1 to 256"),
    ],
)
def test_chat_bodies_that_cannot_be_taken_say_why(
    target: Target, body: bytes, status: int, expected: str
) -> None:
    answer = target.post("/v1/chat/completions", body)
    assert (answer.status_code, expected in answer.json()["detail"]) == (status, True)


@pytest.mark.parametrize("keeps", [False, True])
def test_whole_chat_body_is_kept_where_the_model_says_so(tmp_path: Path, keeps: bool) -> None:
    more = f"[models.kept.intake]\nanswers = 'replica'\nkeep_request = {str(keeps).lower()}"
    body = b'{ "model":"kept", "messages":[{"role":"user","content":"Hi"}],"temperature":0.70,"top_p":0.5}'
    with running(tmp_path, more) as target:
        assert target.post("/v1/chat/completions", body).status_code == 200
        secret = body.replace(b'"top_p"', b'"api_key":"s3cret","top_p"')
        assert target.post("/v1/chat/completions", secret).status_code == 200
        found = [row["inputs"] for row in target.rows("kept")]
    assert [row["prompt"] for row in found] == ["Hi", "Hi"]
    assert "s3cret" not in str(found)
    kept = [row.get("request") for row in found]
    assert kept[0] == (body.decode() if keeps else None)
    assert not keeps or json.loads(kept[1]) == json.loads(body)


def test_odd_chat_bodies_are_records_all_the_same(target: Target) -> None:
    odd = (
        b'{"model": "gpt-4o", "temperature": NaN, "messages": [1, {"role": "user", "content": "\\ud800"}]}',
        b'{"model": "gpt-4o", "temperature": "hot", "messages": [{"role": ["user"], "content": [null, 1]}]}',
        b'{"model": "meta-llama/\\ud800", "messages": [{"role": "user", "content": "x"}]}',
        b'{"model": "gpt-4o", "temperature": 1' + b"0" * 400 + b', "messages": [1]}',
    )
    statuses = [target.post("/v1/chat/completions", body).status_code for body in odd]
    assert statuses == [422, 200, 422, 422]


def test_a_request_waits_where_a_response_is_to_be_joined_and_is_partial_without_an_id(
    tmp_path: Path,
) -> None:
    from outrider.monitor.intake.protocols.base import Arrival
    from outrider.monitor.intake.protocols.open_inference import MirrorTarget, OpenInference
    from outrider.monitor.settings.model_sections import ModelSettings
    from outrider.monitor.settings.sections import LimitSettings

    places = {"m": MirrorTarget.of(ModelSettings(), LimitSettings())}
    intake = OpenInference(places, RequestModels({"m": ()}), schema=Decoder(SchemaBook({"m": {}})).schema)
    body, _ = BODIES["floats as JSON"]
    arrival = Arrival("POST", "/v2/models/m/versions/3/infer", {}, MIRRORED, body, 0)
    [half] = intake.read(arrival).halves
    assert (half.key, half.side, half.part.system["version"]) == ("", "request", ["3"] * 3)
    nameless = json.loads(body)
    del nameless["id"]
    reading = intake.read(Arrival("POST", arrival.path, {}, MIRRORED, json.dumps(nameless).encode(), 0))
    assert reading.halves == []
    assert reading.parts[0].system["partial"] == [True] * 3


def test_the_response_that_production_sends_completes_the_mirrored_request(target: Target) -> None:
    chat = {"model": "late", "messages": [{"role": "user", "content": "Hi"}]}
    assert target.post("/v1/chat/completions", chat, x_request_id="c1").status_code == 200
    body, _ = BODIES["floats as JSON"]
    assert target.post("/v2/models/late/versions/3/infer", body, x_request_id="v1").status_code == 200
    assert target.rows("late") == []
    said = [{"model": "late", "id": "c1", "outputs": {"answer": "Hello"}}]
    said += [{"model": "late", "id": f"v1:{row}", "outputs": {"score": row / 4}} for row in range(3)]
    assert target.post("/v1/records?join=true", said).status_code == 202
    rows = {row["id"]: row for row in target.rows("late")}
    assert rows["c1"]["inputs"]["prompt"] == "Hi"
    assert rows["c1"]["outputs"] == {"answer": "Hello"}
    parts = [rows[f"v1:{row}"] for row in range(3)]
    assert [part["inputs"]["x"] for part in parts] == [[0.0, 0.25], [0.5, 0.75], [1.0, 1.25]]
    assert [part["outputs"]["score"] for part in parts] == [0.0, 0.25, 0.5]
    assert rows["v1:0"]["version"] == "3"
    assert not any(row.get("partial") for row in rows.values())


def test_networks_without_a_key_may_send_copies_and_nothing_else(tmp_path: Path) -> None:
    body, _ = BODIES["floats as JSON"]
    networks = '[intake]\nkeyless_networks = ["10.0.0.0/8", "fd00::/8"]\n'
    with running(tmp_path, networks) as target:
        for peer in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
            assert target.post("/v2/models/churn/infer", body, peer=peer).status_code == 200
            # Production's own key is wrong here, and does no harm.
            prod = target.post(
                "/v2/models/churn/infer", body, peer=peer, authorization="Bearer of-production"
            )
            assert prod.status_code == 200
        for path in ("/v1/traces", "/v1/logs", "/v1/cloudevents"):
            assert target.post(path, b"{}", peer="10.1.2.3").status_code != 401
            assert target.post(path, b"{}", peer="11.0.0.1").status_code == 401
        for peer in ("11.0.0.1", "127.0.0.1", "::1", "nonsense"):
            assert target.post("/v2/models/churn/infer", body, peer=peer).status_code == 401
        forged = target.post("/v2/models/churn/infer", body, peer="11.0.0.1", x_forwarded_for="10.0.0.1")
        assert forged.status_code == 401
        for method, path in (
            ("POST", "/v1/records"), ("POST", "/v1/labels"), ("GET", "/v2/models/churn"),
            ("GET", "/v1/flags"), ("GET", "/v2/models/churn/infer"), ("GET", "/"), ("POST", "/v1/review"),
        ):  # fmt: skip
            assert target.call(method, path, b"{}", MIRRORED, peer="10.0.0.1").status_code == 401


def test_a_network_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "outrider.toml"
    path.write_text('[intake]\nkeyless_networks = ["10.0.0.1/8"]\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a network such as 10.0.0.0/8 expected, got '10.0.0.1/8'"):
        load_settings(path)


def test_without_networks_no_peer_passes() -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "headers": [],
        "client": None,
    }
    assert not KeylessWrites((), ())(scope)
    assert not KeylessWrites(("0.0.0.0/0",), ())(scope)


def test_one_name_is_one_models(tmp_path: Path) -> None:
    path = tmp_path / "outrider.toml"
    both = '[models.a.intake]\nrequest_models = ["x"]\n[models.b.intake]\nrequest_models = ["{}"]\n'
    for name, whose in (("x", "model a's too"), ("a", "another model")):
        path.write_text(both.format(name), encoding="utf-8")
        with pytest.raises(ConfigError, match=whose):
            load_settings(path)


def test_the_longest_pattern_counts_and_brackets_are_text() -> None:
    models = RequestModels({"a": ("*",), "b": ("llama-*", "odd[1]*"), "c": ("llama-3-*",)})
    assert [models.find(name) for name in ("llama-3-8b", "llama-2", "odd[1]x", "odd1x", "b")] == list("cbbab")


def test_long_names_of_strangers_are_not_remembered() -> None:
    models, matcher = RequestModels({"a": ("*-large",)}), Matcher({"a": Named(names=("*-large",))})
    long = "x" * 1000 + "-large"
    assert models.find(long) == matcher.find("shop", long, None) == "a"
    assert matcher.find("s" * 1000, "b-large", None) == "a"
    assert (is_read("gen_ai." + long), is_read(long)) == (True, False)
    assert models._find_short.cache_info().currsize == matcher._find_short.cache_info().currsize == 0
    assert models.find("x-large") == matcher.find("shop", "x-large", None) == "a"
    assert models._find_short.cache_info().currsize == matcher._find_short.cache_info().currsize == 1
