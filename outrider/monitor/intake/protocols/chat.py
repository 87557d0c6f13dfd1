"""Shadow target of OpenAI's chat completions and completions, for mirrored requests."""

from collections.abc import Mapping
from typing import Any

import msgspec

from outrider.monitor.http.problem import Problem, ProblemError, problem
from outrider.monitor.intake.decode import Decoded, parse_json
from outrider.monitor.intake.request_parts import RequestPart

from .base import Arrival, HalfPart, ParsedRequest, SenderReply, id_header
from .chat_columns import CALLERS_KEYS, Fields, canonical, input_fields, request_attrs, text
from .ids import check_short, request_id
from .mirror import require_mirror
from .open_inference import MirrorTarget
from .request_models import RequestModels
from .unsupported import is_unsupported_openai, refuse_unsupported

_CHAT, _TEXT = "/chat/completions", "/completions"


class _Asked(msgspec.Struct):
    """Fields of a request that the answer repeats."""

    model: str = ""
    stream: bool | None = None


_DECODE = msgspec.json.Decoder(_Asked).decode


class Chat:
    """``POST …/chat/completions`` and ``POST …/completions``; the answer is a completion without text."""

    name = "chat"

    def __init__(
        self, targets: Mapping[str, MirrorTarget], models: RequestModels, *, max_depth: int = 16
    ) -> None:
        self._targets = targets
        self._models = models
        self._max_depth = max_depth

    def matches(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:  # noqa: ARG002 - protocol
        return (path.endswith(_TEXT) and method == "POST") or is_unsupported_openai(path)

    def read(self, arrival: Arrival) -> ParsedRequest:
        refuse_unsupported(arrival.path)
        require_mirror(arrival.headers)
        body = self._body(arrival.body)
        id_ = request_id(arrival.headers)
        name = text(body.get("model")) or ""
        model = self._models.find(name)
        if model is None:
            return ParsedRequest(rejected=self._models.unknown(name, id_=id_))
        target = self._targets[model]
        entity = target.entity(arrival.headers) or _named(body, "user") or _named(body, "safety_identifier")
        check_short("entity", entity)
        inputs = self._inputs(body)
        if target.keeps_request:
            inputs["request"] = _without_keys(arrival.body, body)
        cannot_join = target.waits and id_ is None
        part = RequestPart(
            model=model,
            indices=[0],
            system={"id": [id_], "entity": [entity], "partial": [cannot_join]},
            fields={"inputs": [inputs], "outputs": [None], "attrs": [request_attrs(body)]},
            has_own_names=True,
        )
        if target.waits and id_ is not None:
            return ParsedRequest(halves=[HalfPart("", "request", part)])
        return ParsedRequest([part])

    def answer(self, arrival: Arrival, decoded: Decoded) -> SenderReply:
        asked = _asked(arrival.body)
        headers = id_header(decoded)
        id_ = headers.get("x-outrider-id") or request_id(arrival.headers) or "outrider"
        is_chat = arrival.path.endswith(_CHAT)
        head = {"id": id_, "created": arrival.received_us // 1_000_000, "model": asked.model}
        if asked.stream is True:
            return SenderReply(200, _stream(head, is_chat=is_chat), b"text/event-stream", headers)
        kind, choice = "text_completion", {"index": 0, "finish_reason": "stop", "text": ""}
        if is_chat:
            message = {"role": "assistant", "content": ""}
            kind, choice = "chat.completion", {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        members = head | {"object": kind, "choices": [choice], "usage": usage}
        return SenderReply(200, msgspec.json.encode(members), headers=headers)

    def _inputs(self, body: Mapping[str, Any]) -> Fields:
        try:
            return _inputs(body)
        except RecursionError:
            raise _bad(f"nested deeper than {self._max_depth} levels (limits.depth)") from None

    def _body(self, body: bytes) -> dict[str, Any]:
        parsed = parse_json(body, self._max_depth)
        if not isinstance(parsed, dict):
            raise _bad(f"a JSON object expected, got {type(parsed).__name__}")
        return parsed

    def error(self, problem: Problem) -> dict[str, object]:
        return {"message": problem.detail, "type": problem.title, "param": None, "code": None}


def _asked(body: bytes) -> _Asked:
    try:
        return _DECODE(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Asked()  # numbers or texts that only the slow parser takes


def _inputs(body: Mapping[str, Any]) -> Fields:
    messages, prompt = body.get("messages"), body.get("prompt")
    if isinstance(messages, list) and messages:
        return input_fields(messages, tools=body.get("tools"))
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) for one in prompt):
        prompt = "\n".join(prompt)
    if isinstance(prompt, str):
        return {"prompt": prompt}
    raise _bad("messages: a list of at least one message expected (or a prompt: text)")


def _without_keys(text: bytes, body: Mapping[str, Any]) -> str:
    """The body as received, without callers' keys."""
    if not body.keys() & {*CALLERS_KEYS}:
        return text.decode("utf-8", "replace")
    return canonical({name: value for name, value in body.items() if name not in CALLERS_KEYS})


def _stream(head: dict[str, Any], *, is_chat: bool) -> bytes:
    """Server-sent events: one chunk that ends the answer."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    choice |= {"delta": {"role": "assistant", "content": ""}} if is_chat else {"text": ""}
    kind = "chat.completion.chunk" if is_chat else "text_completion"
    chunk = msgspec.json.encode(head | {"object": kind, "choices": [choice]})
    return b"data: " + chunk + b"\n\ndata: [DONE]\n\n"


def _named(body: Mapping[str, Any], name: str) -> str | None:
    return text(body.get(name)) or None


def _bad(reason: str) -> ProblemError:
    return ProblemError(problem(400, f"chat body: {reason}"))
