"""Client of OpenAI-style completions that replays requests, changing only model, system prompt and
streaming."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pyarrow as pa

from outrider.assertions import Batch
from outrider.behavioral_tests.asking.server import Fate, ModelServer, in_threads
from outrider.errors import ConfigError
from outrider.monitor.intake.protocols.chat_columns import content_text

from .answers import Answers
from .completions import NAMES, OtherForm, answer_fields, parsed_answer, tokens
from .known_answers import KnownAnswers, is_cache_hit
from .questions import MODEL, REQUEST, Members, members_of, raw, value_of

ROUND_BYTES = 134_217_728
"""Maximum total length of the answers to one batch; further ones are ``unreadable``."""
_SYSTEM = ("system", "developer")
_NAME = 200


class CannotAsk(ValueError):  # noqa: N818 - reads as the thing it is
    """Recorded request that cannot be sent to this server."""


@dataclass(frozen=True, slots=True)
class _Reply:
    fate: Fate
    why: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    latency_s: float = float("nan")
    tokens: tuple[int, int] = (-1, -1)
    is_cached: bool = False
    model: str = ""


class ChatAsker:
    """Client of an OpenAI-style server; ``model`` None: as in the recorded request, else the server's
    only model."""

    def __init__(
        self,
        name: str,
        url: str,
        server: ModelServer,
        *,
        model: str | None = None,
        system: str | None = None,
        parallel: int = 4,
        known: KnownAnswers | None = None,
    ) -> None:
        self.name = name
        self._server = server
        parts = urlsplit(url)
        base = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/chat")
        self._chat = parts._replace(path=f"{base}/chat/completions").geturl()
        self._text = parts._replace(path=f"{base}/completions").geturl()
        self._models = parts._replace(path=f"{base}/models", query="").geturl()
        self._model, self.system, self._parallel = model, system, parallel
        self._only_model: str | None = None
        self._lock = threading.Lock()
        self._known = known or KnownAnswers()
        self.borrowed: Counter[str] = Counter()

    @property
    def retries(self) -> int:
        return self._server.retries

    def ask(self, questions: Batch, /) -> Answers:
        if not questions.has(REQUEST):
            there = ", ".join(name for name in questions.names if name.startswith("inputs."))
            raise ConfigError(
                f"{self.name} answers completions, but the traffic holds {there or 'no question'}: "
                "name a V2 address or a model file for such records"
            )
        budget = _Budget(ROUND_BYTES)
        bodies = questions.arrow(REQUEST).to_pylist()
        replies = in_threads(self._parallel, [partial(self._one, body, budget) for body in bodies])
        return _answers(questions, replies)

    def close(self) -> None: ...

    def request(self, body: str) -> tuple[str, bytes]:
        given = members_of(body.encode())
        members = dict(given)
        if bytes(members.get("stream", b"false")) != b"false":
            members["stream"] = msgspec.Raw(b"false")
        members.pop("stream_options", None)
        if model := self._model or (None if value_of(members, "model") else self._served()):
            members["model"] = raw(model)
        is_chat = "messages" in members
        if self.system is not None:
            if not is_chat:
                raise CannotAsk("a completion without messages has no place for a system prompt")
            members["messages"] = with_system(members["messages"], self.system)
        is_same = members.keys() == given.keys() and all(members[n] is given[n] for n in members)
        content = body.encode() if is_same else msgspec.json.encode(members)
        return (self._chat if is_chat else self._text), content

    def _one(self, body: str, budget: "_Budget") -> _Reply:
        try:
            url, content = self.request(body)
        except (ValueError, msgspec.MsgspecError) as error:
            return _Reply("unasked", str(error))
        found = self._server.post(content, url=url)
        if found.fate != "answered":
            return _Reply(found.fate, found.why)
        try:
            answer = parsed_answer(found.body)
            fields = answer_fields(answer)
        except OtherForm as error:
            return _Reply("unreadable", str(error)[:200])
        if not budget.takes(sum(len(value) for value in fields.values() if value)):
            return _Reply("unreadable", f"the answers of one round are longer than {ROUND_BYTES} bytes")
        is_known, other = self._known.meets(self.name, content, found.body, answer.get("id"))
        if other:
            with self._lock:
                self.borrowed[other] += 1
        is_cached = is_known or is_cache_hit(found.headers)
        model = answer.get("model")
        named = model[:_NAME] if isinstance(model, str) else ""
        return _Reply("answered", "", fields, found.latency_s, tokens(answer), is_cached, named)

    def _served(self) -> str:
        """Name of the server's only model, fetched once; raises :class:`CannotAsk` if it does not
        serve exactly one."""
        with self._lock:
            if self._only_model is None:
                body = self._server.get(self._models)
                try:
                    listed = msgspec.json.decode(body or b"{}")
                    names = [str(each["id"]) for each in listed["data"]]
                except (msgspec.MsgspecError, KeyError, TypeError):
                    names = []
                self._only_model = names[0] if len(names) == 1 else ""
            if not self._only_model:
                raise CannotAsk(
                    "the request names no model, and the server does not serve exactly one: name it there"
                )
            return self._only_model


def with_system(messages: msgspec.Raw, system: str) -> msgspec.Raw:
    """Replace the system prompt, or prepend one; all other messages stay byte for byte.

    Examples
    --------
    >>> bytes(with_system(msgspec.Raw(b'[{"role":"user","content":"Hi"}]'), "Be brief."))
    b'[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]'
    """
    listed = msgspec.json.decode(messages, type=list[msgspec.Raw])
    for at, message in enumerate(listed):
        inner: Members = msgspec.json.decode(message, type=Members)
        if value_of(inner, "role") in _SYSTEM:
            listed[at] = raw(inner | {"content": raw(system)})
            return raw(listed)
    return raw([raw({"role": "system", "content": system}), *listed])


def system_prompt(questions: Batch) -> str | None:
    """System prompt of the first question; None without one."""
    if not questions.has(REQUEST) or not questions.rows:
        return None
    try:
        messages = value_of(members_of(questions.arrow(REQUEST)[0].as_py().encode()), "messages")
    except (ValueError, msgspec.MsgspecError):
        return None
    found = [each for each in messages or () if isinstance(each, dict) and each.get("role") in _SYSTEM]
    return content_text(found[0].get("content")) if found else None


class _Budget:
    """Remaining length of the answers to one batch, shared by threads."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    def takes(self, size: int) -> bool:
        with self._lock:
            self._left -= size
            return self._left >= 0


def _answers(questions: Batch, replies: Sequence[_Reply]) -> Answers:
    columns: dict[str, Any] = {"id": questions.arrow("id")}
    for name in NAMES:
        columns[f"outputs.{name}"] = pa.array([each.fields.get(name) for each in replies], pa.string())
    return Answers(
        Batch.from_columns(columns, model=MODEL, rows=questions.rows),
        np.array([each.fate for each in replies], dtype=object),
        np.array([each.why for each in replies], dtype=object),
        np.array([each.latency_s for each in replies], dtype=np.float64),
        np.array([each.tokens for each in replies], dtype=np.int64).reshape(len(replies), 2),
        np.array([each.is_cached for each in replies], dtype=np.bool_),
        frozenset(each.model for each in replies) - {""},
    )
