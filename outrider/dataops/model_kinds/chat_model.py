"""Models behind ``chat/completions`` (OpenAI, vLLM, llama.cpp, Ollama …) as Predictors.

Every record is a question of its own. One that gets no answer has nulls and says why in ``error``; only when
none of a block gets one is it the model that fails.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import plain
from outrider.assertions.texts.words import named
from outrider.behavioral_tests.asking.chat import ChatReply, ask_chat
from outrider.behavioral_tests.asking.limits import RateLimit
from outrider.behavioral_tests.asking.server import ModelServer, in_threads
from outrider.errors import ConfigError, ServerError

from .source import Source

FIELD = re.compile(r"\{inputs\.(\w+)\}")
TASKS = ("classification", "generation", "other")


class ChatModel:
    """A Predictor that asks about each record, several at a time.

    The question is ``options.prompt`` with ``{inputs.NAME}``, else the first of ``inputs``; a field called
    ``messages`` holds whole conversations as JSON. A classifier answers the class that its text names, alone
    or among other words; others answer ``text`` (``options.output`` calls it something else).
    """

    def __init__(self, source: Source, server: ModelServer) -> None:
        options = source.options
        self._server = server
        self._inputs = source.inputs
        self._prompt = options.get("prompt")
        self._body = {"model": options.get("model", ""), "temperature": 0}
        self._body["max_tokens"] = int(source.positive("max_tokens", 256))
        self._system = options.get("system")
        self._output = str(options.get("output", "text"))
        self._parallel = int(source.positive("parallel", 4))
        self._classes = source.classes if source.task == "classification" else ()
        rate = source.positive("rows_per_s", 1.0) if "rows_per_s" in options else None
        self._limit = RateLimit(rate, burst=max(1.0, rate or 0.0))
        if source.task not in TASKS:
            raise ConfigError(f"task {', '.join(TASKS)} expected of {source.reference}, got {source.task}")
        if source.task == "classification" and not self._classes:
            raise ConfigError(f"{source.reference}: classes expected: what the model may answer")
        if not source.inputs and self._prompt is None:
            raise ConfigError(f"{source.reference}: inputs or options.prompt expected, for the question")

    def __call__(self, batch: Batch, /) -> dict[str, NDArray[Any]]:
        bodies = [self._body | {"messages": messages} for messages in self._messages(batch)]
        replies = self._server.watched(lambda: self._ask(bodies))
        texts = np.array([reply.text for reply in replies], dtype=object)
        errors = np.array([reply.why for reply in replies], dtype=object)
        if not self._classes:
            return {self._output: texts, "error": errors}
        labels = [None if text is None else class_of(text, self._classes) for text in texts]
        for row, (text, label) in enumerate(zip(texts, labels, strict=True)):
            if text is not None and label is None:
                errors[row] = f"none of {', '.join(map(str, self._classes))} in {text!r:.200}"
        return {"label": np.array(labels, dtype=object), self._output: texts, "error": errors}

    def _messages(self, batch: Batch) -> list[list[dict[str, Any]]]:
        if self._prompt is None and self._inputs == ("messages",):
            return [self._talk(json.loads(value)) for value in _column(batch, "messages")]
        names = FIELD.findall(self._prompt) if self._prompt else self._inputs[:1]
        columns = {name: _column(batch, name) for name in names}
        before = [{"role": "system", "content": self._system}] if self._system else []
        texts = [
            self._filled({name: values[row] for name, values in columns.items()}) for row in range(batch.rows)
        ]
        return [[*before, {"role": "user", "content": text}] for text in texts]

    def _talk(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Conversation with ``options.system`` in place of its first system prompt, or in front."""
        if not self._system:
            return messages
        roles = [message.get("role") for message in messages]
        at = next((at for at, role in enumerate(roles) if role in ("system", "developer")), None)
        if at is None:
            return [{"role": "system", "content": self._system}, *messages]
        return [*messages[:at], messages[at] | {"content": self._system}, *messages[at + 1 :]]

    def _filled(self, values: Mapping[str, str]) -> str:
        if self._prompt is None:
            return next(iter(values.values()))
        return FIELD.sub(lambda field: values[field[1]], self._prompt)

    def _ask(self, bodies: Sequence[Mapping[str, Any]]) -> list[ChatReply]:
        until = time.monotonic() + self._server.deadline_s
        allowed = self._limit.take(len(bodies))
        work = [partial(ask_chat, self._server, body, until=until) for body in bodies[:allowed]]
        asked = in_threads(self._parallel, work)
        if asked and all(reply.text is None for reply in asked):
            raise ServerError(f"{self._server.name}: {asked[0].why}")
        left_out = ChatReply("unasked", why="not asked: options.rows_per_s")
        return [*asked, *[left_out] * (len(bodies) - allowed)]


def class_of(text: str, classes: Sequence[int | str]) -> int | str | None:
    """Class that a text names: the whole text, else the only class among its words.

    Examples
    --------
    >>> class_of(" Spam. ", ("spam", "ham")), class_of("It is ham, I think", ("spam", "ham"))
    ('spam', 'ham')
    >>> class_of("spam or ham", ("spam", "ham")) is None
    True
    """
    plain_text = text.strip().strip(".!\"'`*").casefold()
    names = {str(value).casefold(): value for value in classes}
    if plain_text in names:
        return names[plain_text]
    found = named(plain_text, tuple(names))
    return names[found[0]] if len(found) == 1 else None


def _column(batch: Batch, name: str) -> list[str]:
    """Values of a field as a prompt shows them: texts as they are, the rest as JSON."""
    column = f"inputs.{name}"
    if not batch.has(column):
        raise KeyError(f"no column {column!r}; there are {', '.join(batch.names)}")
    values = plain(batch.arrow(column), column)
    for row, value in enumerate(values):
        if value is None:
            raise ValueError(f"record {batch.keys[row]!r}: {column} is missing, there is nothing to ask")
    return [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
