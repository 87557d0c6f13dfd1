"""Askers of servers: the same question, nothing but the question, and every failure as an answer."""

import gzip
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.errors import ConfigError
from outrider.monitor.compare import askers, chat_asker
from outrider.monitor.compare.askers import AskOptions, asker_of, public_hosts
from outrider.monitor.compare.known_answers import KnownAnswers
from outrider.monitor.compare.traffic import Traffic
from tests.model_server import model_server
from tests.scripted_server import Asked, Reply, scripted_server
from tests.soak import PATIENCE_S

OPTIONS = AskOptions(deadline_s=PATIENCE_S, key_env="COMPARE_TEST_KEY")
"""Servers of two tests may get one port: answers that are held against others need their own ``known``."""
REQUEST = (
    '{ "model":"prod", "messages":[{"role":"system","content":"Be kind."},{"role":"user","content":'
    '[{"type":"text","text":"Hi \\u00fc"},'
    '{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}],'
    '"temperature":0.70,"tools":[{"type":"function","function":{"name":"f"}}],'
    '"response_format":{"type":"json_object"},"seed":12345678901234567890}'
)


def questions(*bodies: str) -> Batch:
    return Batch.from_columns({"inputs.request": list(bodies)}, model="compare")


def chat(text: str = "Hello", **more: Any) -> bytes:
    message = {"role": "assistant", "content": text} | more.pop("message", {})
    body = {"choices": [{"message": message, "finish_reason": "stop"}]} | more
    return json.dumps(body).encode()


def fates(answer: Callable[[Asked], Reply], *bodies: str, deadline_s: float = PATIENCE_S) -> Any:
    with scripted_server(answer) as server:
        asker = asker_of(server.url, OPTIONS.but(known=KnownAnswers(), deadline_s=deadline_s))
        return asker.ask(questions(*(bodies or (REQUEST,))))


# ---- the same question -----------------------------------------------------------------------------------


def test_question_arrives_byte_for_byte_and_marked() -> None:
    with scripted_server(lambda _: Reply(chat())) as server:
        answers = asker_of(f"{server.url}/v1", OPTIONS).ask(questions(REQUEST))
        (asked,) = server.asked
    assert asked.body == REQUEST.encode()
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["x-outrider-shadow"] == "1"
    assert not {"authorization", "cookie"} & asked.headers.keys()
    assert answers.fate.tolist() == ["answered"]
    assert answers.outputs.column("outputs.text").tolist() == ["Hello"]


def test_only_model_and_stream_change() -> None:
    streamed = REQUEST.replace('"seed"', '"stream":true,"stream_options":{"include_usage":true},"seed"')
    with scripted_server(lambda _: Reply(chat())) as server:
        asker_of(server.url, OPTIONS.but(known=KnownAnswers(), model="next")).ask(questions(streamed))
        sent = server.asked[0].body
    assert json.loads(sent) == json.loads(REQUEST) | {"model": "next", "stream": False}
    for kept in (b'"temperature":0.70', b'"seed":12345678901234567890', b"Hi \\u00fc"):
        assert kept in sent


def test_prompt_file_asks_production_with_another_system_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompt.md").write_text("Be brief.\n", encoding="utf-8")
    monkeypatch.setenv("COMPARE_PRODUCTION_KEY", "own")
    monkeypatch.setenv("COMPARE_TEST_KEY", "other")
    without = '{"model":"prod","messages":[{"role":"user","content":"Hi"}]}'
    with scripted_server(lambda _: Reply(chat())) as server:
        options = OPTIONS.but(known=KnownAnswers(), production_key_env="COMPARE_PRODUCTION_KEY", parallel=1)
        asker = asker_of("prompt.md", options, production=server.url, folder=tmp_path)
        asker.ask(questions(REQUEST, without))
        first, second = (json.loads(asked.body)["messages"] for asked in server.asked)
        keys = {asked.headers["authorization"] for asked in server.asked}
    assert asker.name == "prompt.md"
    assert first[0] == second[0] == {"role": "system", "content": "Be brief."}
    assert first[1:] == json.loads(REQUEST)["messages"][1:]
    assert keys == {"Bearer own"}


def test_key_comes_from_the_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPARE_TEST_KEY", "k3y")
    line = {"request": json.loads(REQUEST) | {"api_key": "caller"}, "headers": {"authorization": "caller"}}
    (tmp_path / "a.jsonl").write_text(json.dumps(line), encoding="utf-8")
    with scripted_server(lambda _: Reply(chat())) as server:
        asker = asker_of(server.url, OPTIONS)
        for batch in Traffic([tmp_path / "a.jsonl"]):
            asker.ask(batch)
        (asked,) = server.asked
    assert asked.headers["authorization"] == "Bearer k3y"
    assert b"caller" not in asked.body
    assert "k3y" not in repr(vars(asker))


def test_unsafe_requests_never_arrive(tmp_path: Path) -> None:
    unsafe = [{"store": True}, {"previous_response_id": "r"}, {"tools": [{"type": "mcp"}]}, {"n": 2}]
    lines = [json.loads(REQUEST) | change for change in unsafe] + [json.loads(REQUEST)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with scripted_server(lambda _: Reply(chat())) as server:
        for batch in Traffic([tmp_path / "a.jsonl"]):
            asker_of(server.url, OPTIONS).ask(batch)
        assert [json.loads(asked.body) for asked in server.asked] == [json.loads(REQUEST)]


def test_request_without_a_model_names_the_only_one_there_is() -> None:
    def answer(asked: Asked) -> Reply:
        return Reply(b'{"data": [{"id": "tiny"}]}' if asked.method == "GET" else chat())

    with scripted_server(answer) as server:
        answers = asker_of(server.url, OPTIONS).ask(
            questions('{"messages":[{"role":"user","content":"Hi"}]}')
        )
        assert json.loads(server.asked[-1].body)["model"] == "tiny"
    assert answers.is_answered.all()


def test_completions_of_prompts_go_to_their_own_address() -> None:
    usage = b'"usage": {"prompt_tokens": 3, "completion_tokens": 1}'
    body = b'{"choices": [{"text": "4", "finish_reason": "stop"}], %s}' % usage
    with scripted_server(lambda _: Reply(body)) as server:
        answers = asker_of(f"{server.url}/v1/chat/completions", OPTIONS).ask(
            questions('{"model":"m","prompt":"2+2="}')
        )
        assert server.asked[0].path == "/v1/completions"
    assert answers.outputs.column("outputs.text").tolist() == ["4"]
    assert answers.tokens.tolist() == [[3, 1]]


def test_tool_calls_are_compared_by_name_and_arguments() -> None:
    def calls(id_: str, arguments: str) -> bytes:
        call = {"id": id_, "type": "function", "function": {"name": "f", "arguments": arguments}}
        return chat(message={"content": None, "tool_calls": [call]})

    replies = iter([calls("1", '{"a": 1, "b": 2}'), calls("2", '{"b":2,"a":1}')])
    with scripted_server(lambda _: Reply(next(replies))) as server:
        answers = asker_of(server.url, OPTIONS.but(known=KnownAnswers(), parallel=1)).ask(
            questions(REQUEST, REQUEST)
        )
    one, two = answers.outputs.column("outputs.tool_calls").tolist()
    assert one == two == '[{"arguments":{"a":1,"b":2},"name":"f"}]'


# ---- failures are answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "fate", "why"),
    [
        (Reply(b"{}", 500), "failed", "status 500"),
        (Reply(b'{"error": {"message": "too long"}}', 400), "refused", "too long"),
        (Reply(b"{}", 401), "refused", "COMPARE_TEST_KEY"),
        (Reply(b"", 302, {"Location": "/elsewhere"}), "failed", "redirects"),
        (Reply(b"", 504), "late", "504"),
        (Reply(b"<html>"), "unreadable", "JSON"),
        (Reply(b"[]"), "unreadable", "object"),
        (Reply(b'{"output": "Hello"}'), "unreadable", "output"),
        (Reply(b'{"choices": []}'), "unreadable", "choices"),
        (Reply(chat(), cut=10), "failed", ""),
        (Reply(b"\x1f\x8bno", headers={"Content-Encoding": "gzip"}), "unreadable", "gzip"),
        (Reply(b"..", headers={"Content-Encoding": "br"}), "unreadable", "br"),
        (Reply(b'data: {"choices": [{"delta": {"content": "He"}}]}\n'), "unreadable", "broke off"),
    ],
)
def test_failure_is_a_fate_with_its_reason(reply: Reply, fate: str, why: str) -> None:
    answers = fates(lambda _: reply)
    assert answers.fate.tolist() == [fate]
    assert why in answers.why[0]
    assert np.isnan(answers.latency_s).all()


def test_one_bad_answer_leaves_the_others() -> None:
    def answer(asked: Asked) -> Reply:
        return Reply(chat(), 500 if b"bad" in asked.body else 200)

    answers = fates(answer, REQUEST, REQUEST.replace("Hi", "bad"), REQUEST)
    assert answers.fate.tolist() == ["answered", "failed", "answered"]
    assert answers.outputs.column("outputs.text", null=None).tolist() == ["Hello", None, "Hello"]
    assert np.isfinite(answers.latency_s).tolist() == [True, False, True]


def test_question_that_was_late_once_is_asked_again_and_answered_without_a_latency() -> None:
    end, asked = threading.Event(), itertools.count()
    asker = OPTIONS.but(known=KnownAnswers(), deadline_s=5.0)
    with scripted_server(lambda _: Reply(chat(), wait=None if next(asked) else end)) as server:
        found = asker_of(server.url, asker)
        answers = found.ask(questions(REQUEST))
        end.set()
    assert (answers.fate.tolist(), found.retries) == (["answered"], 1)
    assert np.isnan(answers.latency_s).all()


def test_hang_is_late_and_nothing_there_is_failed() -> None:
    end = threading.Event()
    answers = fates(lambda _: Reply(chat(), wait=end), deadline_s=0.3)
    end.set()
    assert answers.fate.tolist() == ["late"]
    with scripted_server(lambda _: Reply()) as server:
        gone = server.url
    assert asker_of(gone, OPTIONS).ask(questions(REQUEST)).fate.tolist() == ["failed"]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (gzip.compress(chat(), mtime=0), {"Content-Encoding": "gzip"}),
        (b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\ndata: {"choices":[{"delta":{"content":"lo"},'
         b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n', {"Content-Type": "text/event-stream"}),
    ],
    ids=["gzip", "stream"],
)  # fmt: skip
def test_compressed_and_streamed_answers_are_read(body: bytes, headers: dict[str, str]) -> None:
    answers = fates(lambda _: Reply(body, headers=headers))
    assert answers.outputs.column("outputs.text").tolist() == ["Hello"]
    assert answers.outputs.column("outputs.finish_reason").tolist() == ["stop"]


@pytest.mark.parametrize("is_packed", [False, True])
def test_huge_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch, is_packed: bool) -> None:
    monkeypatch.setattr(askers, "MAX_BYTES", 100_000)
    body = chat("x" * 200_000)
    reply = Reply(gzip.compress(body), headers={"Content-Encoding": "gzip"}) if is_packed else Reply(body)
    answers = fates(lambda _: reply)
    assert answers.fate.tolist() == ["unreadable"]
    assert "100000 bytes" in answers.why[0]


def test_answers_of_a_round_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_asker, "ROUND_BYTES", 1000)
    answers = fates(lambda _: Reply(chat("x" * 400)), *[REQUEST] * 5)
    assert sorted(answers.fate.tolist()) == ["answered"] * 2 + ["unreadable"] * 3


def test_retry_after_is_heeded_once_and_counted() -> None:
    with scripted_server(
        lambda _: Reply(chat()) if len(server.asked) > 1 else Reply(b"{}", 429, {"Retry-After": "0.1"})
    ) as server:
        asker = asker_of(server.url, OPTIONS)
        answers = asker.ask(questions(REQUEST))
        first, second = server.asked
    assert answers.fate.tolist() == ["answered"]
    assert asker.retries == 1
    assert second.at - first.at >= 0.1
    assert np.isnan(answers.latency_s).all()


@pytest.mark.parametrize("after", [{}, {"Retry-After": "3600"}, {"Retry-After": "0"}])
def test_server_that_stays_overloaded_is_asked_twice_at_most(after: dict[str, str]) -> None:
    with scripted_server(lambda _: Reply(b"{}", 503, after)) as server:
        answers = asker_of(server.url, OPTIONS).ask(questions(REQUEST))
        assert len(server.asked) == (2 if after == {"Retry-After": "0"} else 1)
    assert answers.fate.tolist() == ["failed"]


# ---- rate and caches -------------------------------------------------------------------------------------


def test_rate_is_never_exceeded_by_all_who_ask_a_server(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("Be brief.", encoding="utf-8")
    replies = iter([Reply(b"{}", 429, {"Retry-After": "0"})])
    with scripted_server(lambda _: next(replies, Reply(chat()))) as server:
        options = OPTIONS.but(known=KnownAnswers(), rate=40.0, parallel=8)
        both = [
            asker_of(server.url, options),
            asker_of("prompt.md", options, production=server.url, folder=tmp_path),
        ]
        threads = [threading.Thread(target=each.ask, args=(questions(*[REQUEST] * 12),)) for each in both]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        times = [asked.at - began for asked in server.asked]
    assert len(times) == 25
    assert all(count <= 1 + 40.0 * at + 1e-6 for count, at in enumerate(sorted(times), 1))


@pytest.mark.parametrize(
    "headers",
    [{"X-Cache": "HIT"}, {"CF-Cache-Status": "HIT"}, {"Age": "5"}, {"x-litellm-cache-key": "k"}],
)
def test_answer_of_a_cache_is_known_by_its_headers(headers: dict[str, str]) -> None:
    assert fates(lambda _: Reply(chat(), headers=headers)).is_cached.all()
    assert not fates(lambda _: Reply(chat(), headers={"X-Cache": "MISS", "Age": "0"})).is_cached.any()


def _next(replies: Iterator[Reply], _: Asked) -> Reply:
    return next(replies)


def test_equal_answers_under_one_constant_id_are_no_cache() -> None:
    drawn = REQUEST.replace("0.70", "0.9")
    for ids, is_cached in ((["same"] * 4, False), (["a", "b", "c", "b"], True)):
        replies = iter([Reply(chat("Yes", id=each)) for each in ids])
        with scripted_server(partial(_next, replies)) as server:
            asker = asker_of(server.url, OPTIONS.but(known=KnownAnswers(), parallel=1))
            asker.ask(questions(drawn))
            first = asker.ask(questions(drawn.replace("Hi", "Ho"), drawn, drawn.replace("Hi", "Ho")))
        assert first.is_cached.tolist() == [False, False, is_cached]


def test_questions_that_never_left_this_machine_are_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    unnamed = REQUEST.replace('"model":"prod", ', "")
    assert fates(lambda asked: Reply(b"{}", 404 if asked.method == "GET" else 200), unnamed).fate == [
        "unasked"
    ]
    found = asker_of("http://nowhere.invalid/v1", OPTIONS).ask(questions(REQUEST))
    assert found.fate == ["unasked"]
    assert "nowhere.invalid: not sent: " in found.why[0]
    monkeypatch.setenv("COMPARE_TEST_KEY", "k\u20acy")
    found = fates(lambda _: Reply(chat()))
    assert (found.fate[0], "k\u20acy" in found.why[0]) == ("unasked", False)
    monkeypatch.setenv("COMPARE_TEST_KEY", "k3y\n")
    found = fates(lambda _: Reply(chat()))
    assert (found.fate[0], "k3y" in found.why[0]) == ("unasked", False)


def test_a_server_that_is_down_is_no_fault_of_this_machine() -> None:
    with scripted_server(lambda _: Reply(chat())) as server:
        url = server.url
    assert asker_of(url, OPTIONS).ask(questions(REQUEST)).fate == ["failed"]


def test_equal_bytes_of_a_drawn_answer_without_an_id_are_a_cache() -> None:
    drawn, fixed = REQUEST, REQUEST.replace("0.70", "0.0")
    with scripted_server(lambda _: Reply(chat())) as server:
        asker = asker_of(server.url, OPTIONS.but(known=KnownAnswers(), parallel=1))
        assert asker.ask(questions(drawn, fixed)).is_cached.tolist() == [False, False]
        assert asker.ask(questions(drawn, fixed)).is_cached.tolist() == [True, False]


# ---- records ---------------------------------------------------------------------------------------------


def numbers(rows: int) -> Batch:
    columns = {"inputs.x": np.arange(rows, dtype=np.float64), "outputs.label": np.zeros(rows)}
    return Batch.from_columns(columns, model="compare")


def v2(asked: Asked) -> Reply:
    (tensor,) = json.loads(asked.body)["inputs"]
    values = [2 * value for value in tensor["data"]]
    said = {"name": "value", "shape": [len(values), 1], "datatype": "FP64", "data": values}
    return Reply(json.dumps({"outputs": [said]}).encode(), 400 if 66.0 in tensor["data"] else 200)


def test_v2_records_are_asked_in_blocks_and_a_bad_one_alone_fails() -> None:
    with scripted_server(v2) as server:
        answers = asker_of(f"{server.url}/v2/models/m", OPTIONS).ask(numbers(200))
        assert {asked.path for asked in server.asked} == {"/v2/models/m/infer"}
        assert {asked.headers["x-outrider-shadow"] for asked in server.asked} == {"1"}
        assert b"label" not in server.asked[0].body
    assert np.flatnonzero(~answers.is_answered).tolist() == [66]
    values = answers.outputs.column("outputs.value", null=float("nan"))
    assert np.array_equal(np.delete(values, 66), np.delete(2 * np.arange(200.0), 66))
    assert np.isfinite(answers.latency_s[:32]).all()


def test_v1_records_are_asked() -> None:
    with model_server(lambda rows: [{"label": "a" if row["x"] < 3 else "b"} for row in rows]) as server:
        answers = asker_of(server.url, OPTIONS).ask(numbers(40))
    assert answers.is_answered.all()
    assert answers.outputs.column("outputs.label").tolist() == ["a"] * 3 + ["b"] * 37


def test_records_of_another_form_are_unreadable() -> None:
    with model_server(lambda rows: rows[:0]) as server:
        assert set(asker_of(server.url, OPTIONS).ask(numbers(3)).fate) == {"unreadable"}


def test_traffic_of_another_kind_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"inputs\.x"):
        asker_of("http://127.0.0.1:9", OPTIONS).ask(numbers(3))
    with pytest.raises(ConfigError, match="completions"):
        asker_of("http://127.0.0.1:9/v2/models/m", OPTIONS).ask(questions(REQUEST))


# ---- who is asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nowhere", "nothing there"),
        ("prompt.md", "does not exist"),
        ("model.py:predict", "does not exist"),
        ("http://a:b@example.org/v1", "password"),
        ("http://example.org/v2", "names no model"),
        ("http://example.org/v1/responses", "expected"),
        ("http://example.org:port", "address"),
        ("ftp://example.org", "http"),
    ],
)
def test_text_that_names_nobody_is_refused(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word) as caught:
        asker_of(text, OPTIONS, production="http://127.0.0.1:1", folder=tmp_path)
    assert "b@" not in str(caught.value)


def test_prompt_without_production_and_empty_prompt_are_refused(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text(" \n", encoding="utf-8")
    with pytest.raises(ConfigError, match="--production"):
        asker_of("prompt.md", OPTIONS, folder=tmp_path)
    with pytest.raises(ConfigError, match="empty"):
        asker_of("prompt.md", OPTIONS, production="http://127.0.0.1:1", folder=tmp_path)


def test_public_hosts_beside_productions_are_named() -> None:
    candidates = ["http://8.8.8.8/v1", "http://10.0.0.1/v1", "http://gateway:80", "model.py:f", "prompt.md"]
    assert public_hosts(candidates, "http://127.0.0.1") == ["8.8.8.8"]
    assert public_hosts(candidates, "https://8.8.8.8/v1") == []
    assert public_hosts(["https://api.nowhere.invalid/v1"], None) == ["api.nowhere.invalid"]
