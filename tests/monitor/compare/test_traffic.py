"""Recorded traffic becomes questions: every form of a line, what may not be asked, what is left out."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from outrider.assertions import Batch
from outrider.errors import ConfigError
from outrider.monitor.compare.askable import KINDS
from outrider.monitor.compare.traffic import Traffic

CHAT = '{"model":"m","messages":[{"role":"user","content":"Hi"}],"temperature":0.70}'
ANSWER = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
SPAN = {
    "traceId": "0" * 31 + "1", "spanId": "0" * 15 + "2", "startTimeUnixNano": "10", "endTimeUnixNano": "20",
    "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
        {"key": "gen_ai.request.top_p", "value": {"doubleValue": 0.5}},
        {"key": "gen_ai.conversation.id", "value": {"stringValue": "talk"}},
        {"key": "gen_ai.input.messages",
         "value": {"stringValue": '[{"role":"user","parts":[{"type":"text","content":"Hi"}]}]'}},
        {"key": "gen_ai.output.messages",
         "value": {"stringValue": '[{"role":"assistant","parts":[{"type":"text","content":"Hello"}],'
                   '"finish_reason":"stop"}]'}},
    ],
}  # fmt: skip


def traffic(folder: Path, *lines: Any, name: str = "asked.jsonl", **options: Any) -> Traffic:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    return Traffic([folder / name], **options)


def records(found: Traffic) -> list[dict[str, Any]]:
    return [record for batch in found for record in batch.to_records()]


def requests(found: Traffic) -> list[dict[str, Any]]:
    return [json.loads(record["inputs"]["request"]) for record in records(found)]


def test_whole_request_is_kept_byte_for_byte(tmp_path: Path) -> None:
    (record,) = records(traffic(tmp_path, CHAT))
    assert record["inputs"]["request"] == CHAT
    assert record["id"] == "asked.jsonl:1"


@pytest.mark.parametrize(
    "line", ['"Hi"', '{"prompt": "Hi"}', '{"text": "Hi", "id": "7", "attrs": {"c": "DE"}}']
)
def test_text_becomes_the_least_request(tmp_path: Path, line: str) -> None:
    assert requests(traffic(tmp_path, line)) == [{"messages": [{"role": "user", "content": "Hi"}]}]


def test_prompt_with_settings_is_a_request_of_completions(tmp_path: Path) -> None:
    line = '{"model": "m", "prompt": "Hi", "max_tokens": 5}'
    assert records(traffic(tmp_path, line))[0]["inputs"]["request"] == line


def test_capture_keeps_request_answer_attributes_and_conversation(tmp_path: Path) -> None:
    about = '"id": "7", "conversation": "t", "attrs": {"c": 1}'
    line = f'{{{about}, "request": {CHAT}, "response": {json.dumps(ANSWER)}}}'
    (record,) = records(traffic(tmp_path, line))
    assert record["inputs"] == {"request": CHAT}
    assert (record["id"], record["entity"], record["attrs"]) == ("7", "t", {"c": 1})
    assert record["outputs"] == {"text": "Hello", "tool_calls": "[]", "finish_reason": "stop"}


def test_capture_of_texts_streams_and_http_is_read(tmp_path: Path) -> None:
    chunk = {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}
    stream = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
    lines = [
        {"request": CHAT, "response": json.dumps(ANSWER)},
        {"request": CHAT, "response": stream},
        {"request": json.loads(CHAT), "response": "Hello"},
        {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": json.loads(CHAT)},
        {"request": {"url": "/v1/chat/completions", "headers": {"Authorization": "Bearer s3cret"},
                     "body": json.loads(CHAT)}, "response": {"status": 200, "body": ANSWER}},
    ]  # fmt: skip
    found = records(traffic(tmp_path, *lines))
    assert [record.get("outputs", {}).get("text") for record in found] == ["Hello"] * 3 + [None, "Hello"]
    assert [json.loads(record["inputs"]["request"]) for record in found] == [json.loads(CHAT)] * 5
    assert "s3cret" not in json.dumps(found)


def test_own_records_of_a_chat_become_requests(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    inputs = {"prompt": "Hi", "messages": json.dumps(messages), "tools": '[{"type":"function"}]'}
    outputs = {"answer": "Hello", "tool_calls": '[{"id":"1","function":{"name":"f","arguments":"{}"}}]'}
    attrs = {"request_model": "m", "temperature": 0.5, "authorization": "Bearer s3cret"}
    (record,) = records(traffic(tmp_path, {"id": "1", "inputs": inputs, "outputs": outputs, "attrs": attrs}))
    assert json.loads(record["inputs"]["request"]) == {
        "messages": messages, "tools": [{"type": "function"}], "model": "m", "temperature": 0.5,
    }  # fmt: skip
    assert record["outputs"] == {"text": "Hello", "tool_calls": '[{"arguments":{},"name":"f"}]'}
    assert record["attrs"] == {"request_model": "m", "temperature": 0.5}


def test_records_of_fields_keep_their_columns(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "inputs": {"age": 4}, "outputs": {"label": "no"}, "entity": "e"},
        {"age": 5, "income": 2.5},
        {"request": {"age": 6}, "response": {"label": "yes"}},
    ]
    found = records(traffic(tmp_path, *lines))
    assert [record["inputs"] for record in found] == [{"age": 4}, {"age": 5, "income": 2.5}, {"age": 6}]
    assert [record.get("outputs") for record in found] == [{"label": "no"}, None, {"label": "yes"}]


def test_v2_and_v1_bodies_are_a_record_for_each_row(tmp_path: Path) -> None:
    tensor = {"name": "x", "shape": [2], "datatype": "FP64", "data": [1.5, 2.5]}
    said = {"outputs": [{"name": "label", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}]}
    lines = [
        {"id": "v", "request": {"inputs": [tensor]}, "response": said},
        {"inputs": [tensor]},
        {"instances": [{"x": 3.5}], "id": "1"},
    ]
    found = records(traffic(tmp_path, *lines))
    assert [record["inputs"]["x"] for record in found] == [1.5, 2.5, 1.5, 2.5, 3.5]
    assert [record.get("outputs", {}).get("label") for record in found] == ["a", "b", None, None, None]
    assert len({record["id"] for record in found}) == 5


def test_otlp_export_gives_the_calls_in_it(tmp_path: Path) -> None:
    other = {**SPAN, "attributes": [{"key": "http.route", "value": {"stringValue": "/x"}}]}
    export = {"resourceSpans": [{"scopeSpans": [{"spans": [SPAN, other]}]}]}
    (record,) = records(traffic(tmp_path, export))
    assert json.loads(record["inputs"]["request"]) == {
        "model": "m", "top_p": 0.5, "messages": [{"role": "user", "content": "Hi"}],
    }  # fmt: skip
    assert record["entity"] == "talk"
    assert record["outputs"]["text"] == "Hello"


def test_logger_events_of_a_call_are_joined(tmp_path: Path) -> None:
    def event(kind: str, body: Any) -> dict[str, Any]:
        return {
            "specversion": "1.0",
            "id": "7",
            "type": f"org.kubeflow.serving.inference.{kind}",
            "data": body,
        }

    found = traffic(tmp_path, event("request", json.loads(CHAT)), event("response", ANSWER))
    (record,) = records(found)
    assert (record["id"], record["outputs"]["text"]) == ("7", "Hello")
    (alone,) = records(traffic(tmp_path, event("request", json.loads(CHAT))))
    assert json.loads(alone["inputs"]["request"]) == json.loads(CHAT)


def test_logger_events_in_a_table_are_joined_beyond_its_blocks(tmp_path: Path) -> None:
    names = [*[f"{at}" for at in range(5000)], *[f"{at}" for at in range(5000)]]
    kinds = [
        f"org.kubeflow.serving.inference.{kind}" for kind in ("request", "response") for _ in range(5000)
    ]
    bodies = [CHAT.encode()] * 5000 + [json.dumps(ANSWER).encode()] * 5000
    media = ["application/json"] * 10_000
    columns = {"id": names, "req_type": kinds, "bytes": bodies, "content_type": media}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = Traffic([tmp_path / "a.parquet"])
    assert sum((~batch.is_null("outputs.text")).sum() for batch in found) == 5000
    assert found.funnel()["askable"] == 5000


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json", "a.json.gz"])
def test_compressed_and_whole_json_files_are_read(tmp_path: Path, name: str) -> None:
    text = f"[{CHAT},\n {CHAT}]" if ".json" in name and "jsonl" not in name else f"{CHAT}\n{CHAT}\n"
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wt") as file:
        file.write(text)
    assert [r["inputs"]["request"] for r in records(Traffic([tmp_path / name]))] == [CHAT, CHAT]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_tables_with_requests_or_fields_are_read(tmp_path: Path, ending: str) -> None:
    def write(name: str, **columns: Any) -> Path:
        path = tmp_path / f"{name}.{ending}"
        table = pa.table(columns)
        if ending == "parquet":
            pq.write_table(table, path)
        else:
            pyarrow.feather.write_feather(table, path, compression="uncompressed")
        return path

    answer = json.dumps(ANSWER)
    whole = write("whole", request=[CHAT], response=[answer], conversation=["t"], **{"attrs.c": ["DE"]})
    ours = write("ours", **{"id": ["1"], "inputs.request": [CHAT], "outputs.text": ["Hello"]})
    texts = write("texts", prompt=["Hi"])
    talks = write("talks", messages=[[{"role": "user", "content": "Hi"}]])
    fields = write("fields", age=[4], income=[2.5], **{"outputs.label": ["a"]})
    (record,) = records(Traffic([whole]))
    assert (record["inputs"], record["entity"], record["attrs"]) == ({"request": CHAT}, "t", {"c": "DE"})
    assert record["outputs"]["text"] == records(Traffic([ours]))[0]["outputs"]["text"] == "Hello"
    assert records(Traffic([ours]))[0]["inputs"]["request"] == CHAT
    hello = [{"messages": [{"role": "user", "content": "Hi"}]}]
    assert requests(Traffic([texts])) == requests(Traffic([talks])) == hello
    assert records(Traffic([fields]))[0]["inputs"] == {"age": 4, "income": 2.5}


def test_own_files_give_inputs_and_answers_alone(tmp_path: Path) -> None:
    records_ = [{"id": "1", "inputs": {"x": 1.5}, "outputs": {"label": "a"}, "label": {"label": "b"}}]
    own = Batch.from_records(records_, model="m").as_replica().to_arrow()
    table = pa.Table.from_batches([own]).append_column("model", pa.array(["m"]))
    pq.write_table(table, tmp_path / "a.parquet")
    (batch,) = list(Traffic([tmp_path / "a.parquet"]))
    assert [name for name in batch.names if "." in name] == ["inputs.x", "outputs.label"]
    assert batch.keys.tolist() == ["1"]


def test_mirrored_body_that_is_no_json_is_not_asked_as_a_text(tmp_path: Path) -> None:
    found = traffic(tmp_path, {"path": "/v1/chat/completions", "request": "--boundary"})
    assert records(found) == []
    assert found.funnel()["unreadable"] == 1


def test_rows_of_a_large_table_stay_columns_in_order(tmp_path: Path) -> None:
    count = 100_000
    pq.write_table(pa.table({"x": np.arange(count), "attrs.c": ["DE"] * count}), tmp_path / "a.parquet")
    found = Traffic([tmp_path / "a.parquet"])
    values = np.concatenate([batch.column("inputs.x") for batch in found])
    assert np.array_equal(values, np.arange(count))
    assert (found.funnel()["seen"], found.funnel()["askable"]) == (count, count)


UNSAFE = {
    "server_tools": {"tools": [{"type": "web_search"}]},
    "stored": {"store": True},
    "conversation": {"previous_response_id": "r"},
    "files": {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
    "background": {"background": True},
    "callbacks": {"webhook_url": "https://example.org"},
    "several_answers": {"n": 3},
    "audio": {"modalities": ["text", "audio"]},
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_request_that_may_act_is_counted_not_asked(tmp_path: Path, kind: str) -> None:
    request = json.loads(CHAT) | UNSAFE[kind]
    found = traffic(tmp_path, request, CHAT)
    assert len(records(found)) == 1
    funnel = found.funnel()
    assert (funnel["seen"], funnel["not askable"], funnel["askable"]) == (2, 1, 1)
    assert kind in funnel["reasons"][0]["reason"]
    assert len(records(traffic(tmp_path, request, CHAT, safe=[kind]))) == 2


def test_guide_names_every_kind_that_can_be_declared_safe() -> None:
    page = (Path(__file__).parents[3] / "docs" / "compare.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []


def test_request_that_only_looks_unsafe_is_asked(tmp_path: Path) -> None:
    harmless = json.loads(CHAT) | {
        "store": False, "n": 1, "tools": [{"type": "function", "function": {"name": "store"}}],
        "messages": [{"role": "user", "content": '{"file_id": "x", "store": true}'}],
    }  # fmt: skip
    assert len(records(traffic(tmp_path, harmless))) == 1


def test_other_interfaces_labels_and_missing_content_are_counted(tmp_path: Path) -> None:
    lines = [
        {"model": "m", "input": "Hi"},
        {"request": {"model": "m", "input": "Hi"}},
        {"id": "1", "label": {"intent": "a"}},
        {"id": "1", "outputs": {"label": "a"}},
        {"model": "m", "messages": []},
    ]
    found = traffic(tmp_path, *lines)
    assert records(found) == []
    assert found.funnel()["not askable"] == found.funnel()["seen"] == 5


def test_unreadable_lines_are_named_and_the_others_asked(tmp_path: Path) -> None:
    found = traffic(tmp_path, "{", "[1]", CHAT, '{"request": {"messages": [{}}', '{"request": "{half"}')
    event = {"specversion": "1.0", "id": "7", "type": "inference.request"}
    broken = [event | {"data_base64": "?"}, event | {"data_base64": "ewo="}]
    assert records(traffic(tmp_path, *broken, name="b.jsonl")) == []
    assert len(records(found)) == 1
    funnel = found.funnel()
    assert (funnel["seen"], funnel["unreadable"], funnel["askable"]) == (5, 4, 1)
    assert [line["line"] for line in funnel["lines"]][:3] == [1, 2, 4]


def test_drop_and_hash_reach_into_requests_and_columns(tmp_path: Path) -> None:
    request = json.loads(CHAT) | {"user": "anna", "metadata": {"ssn": "123", "team": "t"}}
    request["messages"][0]["name"] = "anna"
    line = {"request": request, "attrs": {"mail": "a@b.c", "city": "Ulm"}, "conversation": "anna"}
    found = traffic(
        tmp_path, line, line,
        drop=["inputs.request.metadata.ssn", "attrs.mail", "inputs.request.messages.name"],
        hash=["inputs.request.user", "entity", "attrs.city"],
    )  # fmt: skip
    first, second = records(found)
    body = json.loads(first["inputs"]["request"])
    assert body["metadata"] == {"team": "t"}
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert "mail" not in first["attrs"]
    assert body["user"] == first["entity"] == second["entity"] != "anna"
    assert first["attrs"]["city"] not in ("Ulm", None)
    assert "anna" not in json.dumps(first)
    again = traffic(tmp_path, line, hash=["entity"])
    assert records(again)[0]["entity"] != first["entity"]


def test_hash_of_columns_keeps_nulls_and_equality(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 1, None, 2]}), tmp_path / "a.parquet")
    (batch,) = list(Traffic([tmp_path / "a.parquet"], hash=["inputs.x"]))
    values = batch.arrow("inputs.x").to_pylist()
    assert values[0] == values[1] != values[3]
    assert values[2] is None


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"drop": ["attrs.mial"]}, "attrs.mial"),
        ({"drop": ["inputs.request"]}, "question"),
        ({"hash": ["mail"]}, "mail"),
        ({"safe": ["everything"]}, "everything"),
    ],
)
def test_slip_in_an_option_is_refused(tmp_path: Path, options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        records(traffic(tmp_path, {"request": json.loads(CHAT), "attrs": {"mail": "a"}}, **options))


def test_callers_keys_are_not_kept(tmp_path: Path) -> None:
    request = json.loads(CHAT) | {"api_key": "s3cret", "extra_headers": {"Authorization": "s3cret"}}
    line = {"request": request, "attrs": {"http.cookie": "s3cret", "x-api-key": "s3cret", "c": 1}}
    found = records(traffic(tmp_path, line))
    assert "s3cret" not in json.dumps(found)
    assert json.loads(found[0]["inputs"]["request"]) == json.loads(CHAT)


def test_traffic_is_read_anew_each_time(tmp_path: Path) -> None:
    found = traffic(tmp_path, CHAT, CHAT)
    assert len(records(found)) == len(records(found)) == found.funnel()["seen"] == 2


def test_kinds_of_questions_are_batches_of_their_own(tmp_path: Path) -> None:
    batches: list[Batch] = list(traffic(tmp_path, CHAT, {"age": 4}, {"age": "x"}, CHAT))
    assert [batch.has("inputs.request") for batch in batches] == [True, False, False, True]
