"""Models elsewhere: what they are sent, what is read of their answers, and of what they lack."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch, Predictor
from outrider.dataops.model_kinds import endpoint as endpoints
from outrider.dataops.model_kinds.chat_model import ChatModel
from outrider.dataops.model_kinds.endpoint import load_endpoint
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError, ServerError
from tests.chat_server import chat_server
from tests.model_server import model_server
from tests.soak import promised

BATCH = Batch.from_columns(
    {"inputs.age": np.array([41, 7]), "inputs.pay": np.array([1.5, 2.5]), "inputs.job": ["clerk", "pilot"]},
    model="m",
)


class V2Server(ThreadingHTTPServer):
    """Answers with the tensors of a function; keeps what was asked."""

    daemon_threads = True

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(("127.0.0.1", 0), V2Handler)
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v2/models/toy"


class V2Handler(BaseHTTPRequestHandler):
    server: V2Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.paths.append(self.path)
        found = self.server.answer(body)
        status = found if isinstance(found, int) else 200
        payload = json.dumps(
            {"error": "no"} if status != 200 else {"model_name": "toy", "outputs": found}
        ).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def v2_server(answer: Callable[[dict[str, Any]], Any]) -> Iterator[V2Server]:
    server = V2Server(answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def load(url: str, *, task: Any = "other", inputs: Any = (), classes: Any = (), **options: Any) -> Predictor:
    return load_endpoint(Source("endpoint", url, task=task, inputs=inputs, classes=classes, options=options))


def doubled(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Twice the pay, and the job in capitals."""
    tensors = {tensor["name"]: tensor for tensor in body["inputs"]}
    pay, job = tensors["pay"], tensors["job"]
    return [
        {**pay, "name": "output-0", "data": [2 * value for value in pay["data"]]},
        {**job, "name": "loud", "data": [value.upper() for value in job["data"]]},
    ]


def test_fields_are_tensors_and_tensors_outputs() -> None:
    with v2_server(doubled) as server:
        found = load(server.url, inputs=("age", "pay", "job"), outputs={"output-0": "twice"})(BATCH)
    assert server.paths == ["/v2/models/toy/infer"]
    assert server.asked == [
        {"inputs": [
            {"name": "age", "shape": [2, 1], "datatype": "INT64", "data": [41, 7]},
            {"name": "pay", "shape": [2, 1], "datatype": "FP64", "data": [1.5, 2.5]},
            {"name": "job", "shape": [2, 1], "datatype": "BYTES", "data": ["clerk", "pilot"]},
        ]}
    ]  # fmt: skip
    assert found["twice"].tolist() == [3.0, 5.0]
    assert found["loud"].tolist() == ["CLERK", "PILOT"]


def test_fields_may_be_columns_of_one_tensor_and_blocks_are_cut() -> None:
    def first(body: dict[str, Any]) -> list[dict[str, Any]]:
        rows = body["inputs"][0]["shape"][0]
        return [{"name": "p", "shape": [rows, 2], "datatype": "FP32", "data": [[0.25, 0.75]] * rows}]

    options = {"tensors": {"x": ["pay", "age"]}, "block_rows": 1}
    with v2_server(first) as server:
        found = load(
            server.url, task="classification", inputs=("pay", "age"), classes=("no", "yes"), **options
        )(BATCH)
    tensors = [body["inputs"] for body in server.asked]
    assert [[(t["shape"], t["data"]) for t in each] for each in tensors] == [
        [([1, 2], [1.5, 41.0])],
        [([1, 2], [2.5, 7.0])],
    ]
    assert found["label"].tolist() == ["yes", "yes"]
    assert found["margin"].tolist() == [0.5, 0.5]


def test_logits_and_labels_beside_them() -> None:
    tensors = [
        {"name": "label", "shape": [2], "datatype": "BYTES", "data": ["yes", "no"]},
        {"name": "out", "shape": [2, 2], "datatype": "FP32", "data": [0.0, 1.0, 2.0, 0.0]},
    ]
    with v2_server(lambda _: tensors) as server:
        found = load(server.url, task="classification", classes=("no", "yes"), scores="logits")(BATCH)
    assert found["label"].tolist() == ["yes", "no"]
    np.testing.assert_allclose(found["score"], [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(-2))], atol=1e-6)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([], "outputs expected"),
        ([{"name": "a", "shape": [2], "datatype": "FP32"}], "name, shape, datatype and data expected"),
        (
            [{"name": "a", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}],
            r"first size 2 expected, got shape \[3\]",
        ),
        (
            [{"name": "a", "shape": [2], "datatype": "FP32", "data": [1, 2, 3]}],
            "name, shape, datatype and data",
        ),
        (422, "status 422"),
    ],
)
def test_answers_of_another_form_are_refused(answer: Any, message: str) -> None:
    with v2_server(lambda _: answer) as server:
        predict = load(server.url)
        with pytest.raises(ValueError, match=message):
            predict(BATCH)
        server.answer = doubled
        assert predict(BATCH)  # a refused block is the block's fault: the next is asked at once


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("job", "a", "record '1': inputs.job: a text expected"),
        ("pay", 1.0, "tensor pay: finite numbers expected"),
        ("age", 1, "nulls are never silent"),
    ],
)
def test_nulls_and_nan_are_never_sent(name: str, value: Any, message: str) -> None:
    batch = Batch.from_records([{"inputs": {name: value}}, {"inputs": {name: None}}], model="m")
    with v2_server(doubled) as server:
        with pytest.raises(ValueError, match=message):
            load(server.url)(batch)
        assert server.asked == []


def test_an_endpoint_that_does_not_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "FIRST_REST_S", 0.2)
    status: list[Any] = [503]
    with v2_server(lambda body: status[0] if status[0] == 503 else doubled(body)) as server:
        predict = load(server.url)
        with pytest.raises(ServerError, match="status 503"):
            predict(BATCH)
        with pytest.raises(ServerError, match="requests pause for a while"):
            predict(BATCH)
        assert len(server.asked) == 1
        status[0] = 200
        time.sleep(0.25)
        assert predict(BATCH)["output-0"].tolist() == [3.0, 5.0]
    with pytest.raises(ServerError, match="no answer: Connection refused"):
        predict(BATCH)


def test_instances_and_predictions() -> None:
    with model_server(lambda instances: [{"label": int(each["age"] > 20)} for each in instances]) as server:
        assert load(server.url)(BATCH)["label"].tolist() == [1, 0]


# ---- chat ----------------------------------------------------------------------------------------------


def texts(*values: str) -> Batch:
    return Batch.from_columns({"inputs.prompt": list(values)}, model="m")


def test_every_record_is_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY_OF_THIS_TEST", "secret")
    with chat_server(str.upper) as server:
        predict = load(
            server.url, task="generation", inputs=("prompt",), model="big", key_env="A_KEY_OF_THIS_TEST",
            max_tokens=9, system="Be loud.", output="answer",
        )  # fmt: skip
        server.say = lambda prompt: "loud"
        assert predict(texts("a", "b", "c"))["answer"].tolist() == ["loud"] * 3
    assert set(server.keys) == {"Bearer secret"}
    body = server.bodies[0]
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("big", 9, 0)
    assert body["messages"][0] == {"role": "system", "content": "Be loud."}
    assert sorted(each["messages"][1]["content"] for each in server.bodies) == ["a", "b", "c"]


def test_prompts_are_filled_and_classes_found() -> None:
    with chat_server(lambda prompt: "It is PILOT, surely" if "7" in prompt else "nothing I know") as server:
        predict = load(
            server.url,
            task="classification",
            classes=("clerk", "pilot"),
            prompt="Age {inputs.age}, pay {inputs.pay}?",
        )
        found = predict(BATCH)
    assert sorted(server.prompts) == ["Age 41, pay 1.5?", "Age 7, pay 2.5?"]
    assert found["label"].tolist() == [None, "pilot"]
    assert found["error"].tolist() == ["none of clerk, pilot in 'nothing I know'", ""]


def test_whole_conversations_are_sent_as_they_are() -> None:
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    batch = Batch.from_columns({"inputs.messages": [json.dumps(messages)]}, model="m")
    with chat_server(lambda _: "three") as server:
        assert load(server.url, task="generation", inputs=("messages",))(batch)["text"].tolist() == ["three"]
    assert server.bodies[0]["messages"] == messages


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_prompt_takes_the_place_of_that_of_the_conversation(role: str) -> None:
    before, said = {"role": role, "content": "old"}, {"role": "user", "content": "one"}
    batch = Batch.from_columns(
        {"inputs.messages": [json.dumps([before, said]), json.dumps([said])]}, model="m"
    )
    with chat_server(lambda _: "two") as server:
        load(server.url, task="generation", inputs=("messages",), system="new")(batch)
    sent = sorted((body["messages"] for body in server.bodies), key=str)
    assert sent == sorted(
        ([{"role": role, "content": "new"}, said], [{"role": "system", "content": "new"}, said]), key=str
    )


def test_a_record_without_an_answer_says_why_and_the_others_are_answered() -> None:
    with chat_server(lambda prompt: "503 busy" if prompt == "b" else prompt) as server:
        found = load(server.url, task="generation", inputs=("prompt",))(texts("a", "b", "c"))
    assert found["text"].tolist() == ["a", None, "c"]
    assert [bool(error) for error in found["error"]] == [False, True, False]
    assert "status 503" in found["error"][1]


def test_when_none_is_answered_it_is_the_model_that_fails() -> None:
    with chat_server(lambda _: "503 busy") as server:
        predict = load(server.url, task="generation", inputs=("prompt",))
        with pytest.raises(ServerError, match="status 503"):
            predict(texts("a", "b"))
        with pytest.raises(ServerError, match="requests pause"):
            predict(texts("a", "b"))
        assert len(server.prompts) == 2


def test_what_there_is_no_time_for_is_not_asked() -> None:
    def slow(prompt: str) -> str:
        time.sleep(0.6)
        return prompt

    with chat_server(slow) as server:
        predict = load(server.url, task="generation", inputs=("prompt",), deadline_s=1.5, parallel=1)
        began = time.monotonic()
        found = predict(texts(*"abcdef"))
        assert time.monotonic() - began < promised(3.0)
    assert found["text"][0] == "a"
    assert found["text"][-1] is None
    assert "no time left of 1.5 s" in found["error"][-1]
    assert len(server.prompts) <= 3


def test_a_paid_model_is_asked_no_more_than_it_may_cost() -> None:
    with chat_server(lambda prompt: prompt) as server:
        predict = load(server.url, task="generation", inputs=("prompt",), rows_per_s=0.001)
        assert predict(texts("a", "b", "c"))["text"].tolist() == ["a", None, None]
        assert predict(texts("d"))["error"].tolist() == ["not asked: options.rows_per_s"]
        assert server.prompts == ["a"]


@pytest.mark.parametrize(
    ("url", "more", "message"),
    [
        ("http://h/v2/models/m", {"deadline": 1}, "options.deadline: .* knows deadline_s, key_env"),
        ("http://h/v2/models/m", {"deadline_s": -1}, "options.deadline_s: a number above 0 expected, got -1"),
        ("http://h/v2/models/m", {"tensors": ["a"]}, "options.tensors: a table expected"),
        ("http://h/v2/models/m", {"scores": "sure"}, "options.scores: probs or logits expected"),
        (
            "http://h/v1/chat/completions",
            {"task": "classification"},
            "classes expected: what the model may answer",
        ),
        (
            "http://h/v1/chat/completions",
            {"task": "embedding"},
            "task classification, generation, other expected",
        ),
        ("http://h/v1/chat/completions", {}, "inputs or options.prompt expected"),
        ("http://h/v1/chat/completions", {"outputs": {}}, "options.outputs: .* knows deadline_s"),
    ],
)
def test_settings_that_cannot_be_are_refused(url: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(url, **more)


def test_nobody_is_asked_before_there_is_a_record() -> None:
    assert isinstance(load("http://127.0.0.1:9/v1/chat/completions", inputs=("a",)), ChatModel)
