"""One client of served models: what became of a question, and what is raised of it."""

import gzip
import json
from collections.abc import Callable

import pytest

from outrider.assertions import Batch, Predictor
from outrider.behavioral_tests.asking.chat import ask_chat
from outrider.behavioral_tests.asking.records import ServedModel, V1Instances, endpoint
from outrider.behavioral_tests.asking.server import ModelServer
from outrider.behavioral_tests.generation import chat_generator
from outrider.dataops.model_kinds.open_inference import V2Tensors
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ServerError
from tests.scripted_server import Reply, scripted_server
from tests.soak import PATIENCE_S

BATCH = Batch.from_columns({"inputs.x": [1.0, 2.0]}, model="m")
FORMS: list[Callable[[str], V1Instances | V2Tensors]] = [
    V1Instances,
    lambda url: V2Tensors(Source("endpoint", url, task="other")),
]


def served(url: str, form: Callable[[str], V1Instances | V2Tensors] = V1Instances) -> Predictor:
    server = ModelServer(url, deadline_s=PATIENCE_S, key_env="A_KEY_THAT_IS_NOT_SET", max_bytes=1000)
    return ServedModel(server, form(url))


@pytest.mark.parametrize("form", FORMS, ids=["v1", "v2"])
@pytest.mark.parametrize(
    ("reply", "kind", "message"),
    [
        (Reply(b"<html>Sign in</html>"), ServerError, "JSON expected"),
        (Reply(b"[" * 100_000), ValueError, "an answer of more than 1000 bytes"),
        (Reply(b"[]"), ValueError, "a JSON object expected, got list"),
        (Reply(b"{}"), ValueError, "expected, got {}"),
        (Reply(b'{"detail": [{"msg": "x: a number expected"}]}', 422), ValueError, "status 422: x: a number"),
        (Reply(b'{"error": "no such model"}', 404), ServerError, "status 404: no such model"),
        (Reply(b"", 401), ServerError, r"status 401: .* \(no key in A_KEY_THAT_IS_NOT_SET\)"),
        (Reply(b"", 429), ServerError, "status 429"),
        (Reply(b"", 408), ServerError, "status 408"),
        (Reply(b"..", 500, {"Content-Encoding": "br"}), ServerError, "status 500"),
        (Reply(b"..", 200, {"Content-Encoding": "br"}), ValueError, "compressed by 'br'"),
        (Reply(b"", 302, {"Location": "/there"}), ServerError, "redirects are not followed"),
        (Reply(b"{}", cut=1), ServerError, "no answer: "),
    ],
    ids=lambda value: f"{value.status} {value.body[:9]!r}" if isinstance(value, Reply) else "",
)
def test_predictor_blames_records_only_where_the_server_does(
    reply: Reply, kind: type[Exception], message: str, form: Callable[[str], V1Instances | V2Tensors]
) -> None:
    with scripted_server(lambda _: reply) as server:
        with pytest.raises(kind, match=message) as caught:
            served(server.url, form)(BATCH)
        assert str(caught.value).startswith(f"{server.url}: ")
        assert len(server.asked) == 1


def test_predictor_asks_no_second_block_when_the_first_is_answered_in_another_form() -> None:
    with scripted_server(lambda _: Reply(b"{}")) as server:
        model = ModelServer(server.url, deadline_s=PATIENCE_S, key_env=None)
        with pytest.raises(ValueError, match=r"with 1 entries expected"):
            ServedModel(model, V1Instances(server.url), block_rows=1)(BATCH)
        assert len(server.asked) == 1


def test_predictor_reads_numbers_that_only_python_writes() -> None:
    with scripted_server(lambda _: Reply(b'{"predictions": [NaN, Infinity]}')) as server:
        assert str(served(server.url)(BATCH)["label"].tolist()) == "[nan, inf]"


def test_compressed_answer_is_read_by_every_caller() -> None:
    body = gzip.compress(json.dumps({"predictions": [1, 2]}).encode())
    with scripted_server(lambda _: Reply(body, headers={"Content-Encoding": "gzip"})) as server:
        assert served(server.url)(BATCH)["label"].tolist() == [1, 2]


def test_block_without_a_field_is_filled_when_another_block_has_it() -> None:
    replies = iter([b'{"predictions": [{"label": 1}]}', b'{"predictions": [{"label": 2, "why": "x"}]}'])
    with scripted_server(lambda _: Reply(next(replies))) as server:
        model = ModelServer(server.url, deadline_s=PATIENCE_S, key_env=None)
        found = ServedModel(model, V1Instances(server.url), block_rows=1)(BATCH)
    assert {name: values.tolist() for name, values in found.items()} == {"label": [1, 2], "why": [None, "x"]}


@pytest.mark.parametrize(
    ("body", "why", "is_kept"),
    [
        (b'{"choices": []}', "choices[0].message.content expected", True),
        (b"{}", "choices[0].message.content expected", True),
        (b"[]", "a JSON object expected, got list", False),
        (b"oops", "JSON expected", False),
    ],
)
def test_chat_reply_without_a_text_keeps_the_answer_where_it_is_one(
    body: bytes, why: str, is_kept: bool
) -> None:
    with scripted_server(lambda _: Reply(body)) as server:
        reply = ask_chat(ModelServer(server.url, deadline_s=PATIENCE_S, key_env=None), {})
    assert (reply.fate, reply.text) == ("unreadable", None)
    assert why in reply.why
    assert (reply.body is not None) == is_kept


@pytest.mark.parametrize("reply", [Reply(b"", 500), Reply(b"{}"), Reply(b"oops"), Reply(b"", cut=0)])
def test_messages_hold_neither_the_password_nor_the_query_of_an_address(reply: Reply) -> None:
    with scripted_server(lambda _: reply) as server:
        place = server.url.removeprefix("http://")
        with pytest.raises((ValueError, ServerError), match=f"^http://{place}/m: ") as caught:
            endpoint(f"http://me:pa55@{place}/m?key=s3cret")(BATCH)
        with pytest.raises(ServerError, match=f"^http://{place}/m gave no cases: "):
            chat_generator(f"http://me:pa55@{place}/m?key=s3cret", "m")("?")
        assert server.asked[0].path == "/m?key=s3cret"
    assert "pa55" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_message_of_an_address_that_is_none_holds_no_password() -> None:
    with pytest.raises(ValueError, match="an http:// or https:// address expected, got ftp://h/m") as caught:
        endpoint("ftp://me:pa55@h/m")
    assert "pa55" not in str(caught.value)
