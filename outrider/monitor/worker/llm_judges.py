"""LLM judge of records: prompt in, checked answer out, with a version.

Remote judges speak ``chat/completions``; local ones are a function of a file.
"""

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from outrider.assertions import Batch
from outrider.assertions.batch.columns import plain
from outrider.behavioral_tests.asking.chat import MAX_ANSWER_BYTES, ask_chat, judging_messages
from outrider.behavioral_tests.asking.server import ModelServer, in_threads
from outrider.dataops.judges import Reply, slot_of, version_of
from outrider.dataops.model_kinds.predictors import load_predictor_function
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.judge_version import digest_of, judge_digest, prompt_of
from outrider.monitor.settings.model_sections import JudgeSettings

FIELD = re.compile(r"\{((?:inputs|outputs|attrs)\.\w+)\}")
KINDS: Mapping[str, pa.DataType] = {
    "number": pa.float64(),
    "integer": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
KEPT_TEXT = 2000
LOCAL_CHUNK = 64


class InvalidAnswer(ValueError):  # noqa: N818 - reads as the event it is
    ...


@dataclass(frozen=True, slots=True)
class Question:
    """Question about one row; equal digests are the same question to one version of a judge."""

    row: int
    digest: str
    values: Mapping[str, Any]
    """By column name."""


@dataclass(frozen=True, slots=True)
class Judge:
    model: str
    name: str
    settings: JudgeSettings
    digest: str
    """Version: sixteen hex digits over model, prompt, answer schema and, for a local judge, its file."""
    prompt: str
    ask: Callable[[Batch, Sequence[Question]], list[Reply]]
    """``(batch, questions) -> replies``, one per question; never raises."""
    chunk: int
    """Questions per call: what a crash may cost."""

    @property
    def slot(self) -> str:
        return slot_of(self.name)

    @property
    def version(self) -> str:
        return version_of(self.name, self.digest)

    def questions(self, batch: Batch) -> list[Question | None]:
        """Question per record; None where a needed value is missing."""
        names = reads_of(self.settings, self.prompt)
        if any(not batch.has(name) for name in names):
            return [None] * batch.rows
        table = batch.to_arrow()
        columns = {name: plain(table.column(name), name) for name in names}
        return [
            None
            if any(values[row] is None for values in columns.values())
            else self._question(row, {name: values[row] for name, values in columns.items()})
            for row in range(batch.rows)
        ]

    def _question(self, row: int, values: Mapping[str, Any]) -> Question:
        return Question(row, digest_of(json.dumps(values, sort_keys=True, default=str)), values)

    def columns(self, replies: Sequence[Reply | None], outcomes: Sequence[str | None]) -> dict[str, pa.Array]:
        """Answers as columns, null where there is none, and ``outcome``."""
        found: dict[str, pa.Array] = {}
        for field, kind in self.settings.answer.items():
            values = [None if reply is None else reply.answer.get(field) for reply in replies]
            found[field] = pa.array(values, pa.string() if isinstance(kind, tuple) else KINDS[kind])
        return found | {"outcome": pa.array(outcomes, pa.string())}


def open_judge(settings: Settings, model: str, name: str) -> Judge:
    """Judge of the configuration, with prompt and code loaded; ConfigError where a file cannot be used."""
    own = settings.models[model].judges[name]
    prompt = prompt_of(settings, own)
    digest = judge_digest(settings, own)
    if own.predictor is not None:
        ask = _local(
            own, load_predictor_function(own.predictor, settings.base), reads_of(own, prompt), prompt
        )
        return Judge(model, name, own, digest, prompt, ask, LOCAL_CHUNK)
    return Judge(model, name, own, digest, prompt, _remote(own, prompt), 8 * own.parallel)


def reads_of(judge: JudgeSettings, prompt: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*FIELD.findall(prompt), *judge.reads]))


def parse_answer(text: str, answer: Mapping[str, str | tuple[str, ...]]) -> dict[str, Any]:
    """Answer in a text: the known fields of its last JSON object, checked.

    Examples
    --------
    >>> parse_answer('Let me see. ```{"verdict": "Yes", "score": 1}```', {"verdict": ("yes", "no")})
    {'verdict': 'yes'}
    """
    found = _last_object(text)
    if found is None:
        raise InvalidAnswer("a JSON object expected, found none")
    return check_answer(found, answer)


def check_answer(found: Mapping[str, Any], answer: Mapping[str, str | tuple[str, ...]]) -> dict[str, Any]:
    """Fields of an answer, each checked for its kind; raises InvalidAnswer."""
    missing = [field for field in answer if field not in found]
    if missing:
        raise InvalidAnswer(f"field {missing[0]!r} is missing")
    return {field: _checked(field, found[field], kind) for field, kind in answer.items()}


def _checked(field: str, value: Any, kind: str | tuple[str, ...]) -> Any:
    if isinstance(kind, tuple):
        reply = str(value).strip().casefold()
        for allowed in kind:
            if reply == allowed.casefold():
                return allowed
        raise InvalidAnswer(f"{field}: one of {', '.join(kind)} expected, got {value!r:.100}")
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "boolean" and isinstance(value, bool):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind == "number" and is_number:
        return float(value)
    if kind == "integer" and is_number and float(value).is_integer() and abs(value) < 2**63:
        return int(value)
    raise InvalidAnswer(f"{field}: {kind} expected, got {value!r:.100}")


def _last_object(text: str) -> Mapping[str, Any] | None:
    """Last JSON object at the top level of a text: models think aloud before they answer."""
    decoder, found, at = json.JSONDecoder(), None, text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            end = at + 1
        else:
            found = value
        at = text.find("{", end)
    return found


# ---- remote --------------------------------------------------------------------------------------------


def _remote(judge: JudgeSettings, prompt: str) -> Callable[[Batch, Sequence[Question]], list[Reply]]:
    assert judge.url is not None
    server = ModelServer(
        judge.url, deadline_s=judge.deadline_s, key_env=judge.key_env, max_bytes=MAX_ANSWER_BYTES
    )

    def ask(_batch: Batch, questions: Sequence[Question]) -> list[Reply]:
        asked = [judging_messages(prompt, question.values) for question in questions]
        return in_threads(judge.parallel, [partial(_chat, server, judge, messages) for messages in asked])

    return ask


def _chat(server: ModelServer, judge: JudgeSettings, messages: Sequence[Mapping[str, str]]) -> Reply:
    start = time.monotonic()
    found = ask_chat(server, _body(judge, messages))
    seconds = time.monotonic() - start
    if found.body is None:
        is_late = found.fate == "late"
        return Reply("unavailable", {}, detail=found.why[:KEPT_TEXT], seconds=seconds, spent=is_late)
    text = json.dumps(found.body)[:KEPT_TEXT] if found.text is None else found.text
    tokens = _tokens(found.body, messages, text)
    if found.text is None:
        return Reply("invalid", {}, text, found.why, tokens, seconds)
    return _reply(text, judge, tokens, seconds)


def _reply(text: str, judge: JudgeSettings, tokens: int, seconds: float) -> Reply:
    try:
        return Reply("answered", parse_answer(text, judge.answer), tokens=tokens, seconds=seconds)
    except InvalidAnswer as error:
        return Reply("invalid", {}, text[:KEPT_TEXT], str(error), tokens, seconds)


def _body(judge: JudgeSettings, messages: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": judge.model,
        "messages": messages,
        "temperature": 0,
        "max_tokens": judge.max_tokens,
    }
    if judge.constrain:
        schema = {"name": "answer", "strict": True, "schema": json_schema(judge.answer)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def json_schema(answer: Mapping[str, str | tuple[str, ...]]) -> dict[str, Any]:
    fields = {
        field: {"type": "string", "enum": list(kind)} if isinstance(kind, tuple) else {"type": kind}
        for field, kind in answer.items()
    }
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _tokens(body: Mapping[str, Any], messages: Sequence[Mapping[str, str]], text: str) -> int:
    """Tokens as the server counted them, else a quarter of the characters."""
    usage = body.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    asked = sum(len(message["content"]) for message in messages)
    return total if isinstance(total, int) else (asked + len(text) + 3) // 4


# ---- local ---------------------------------------------------------------------------------------------


def _local(
    judge: JudgeSettings, predict: Callable[[Batch], Mapping[str, Any]], reads: Sequence[str], prompt: str
) -> Callable[[Batch, Sequence[Question]], list[Reply]]:
    def ask(batch: Batch, questions: Sequence[Question]) -> list[Reply]:
        start = time.monotonic()
        try:
            # Only what the question's digest covers: else a cached answer could be another record's.
            rows = batch.take([question.row for question in questions]).to_arrow()
            columns = {name: rows.column(name) for name in ("id", *reads)}
            if prompt:
                asked = [judging_messages(prompt, question.values) for question in questions]
                texts = ["\n".join(message["content"] for message in messages) for messages in asked]
                columns["inputs.prompt"] = pa.array(texts)
            outputs = predict(Batch.from_columns(columns, model=batch.model, rows=len(questions)))
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the questions are counted
            detail = f"{type(error).__name__}: {error}"[:KEPT_TEXT]
            return [Reply("unavailable", {}, detail=detail)] * len(questions)
        each = (time.monotonic() - start) / len(questions)
        return [
            _local_reply({name: values[row] for name, values in outputs.items()}, judge, each)
            for row in range(len(questions))
        ]

    return ask


def _local_reply(values: Mapping[str, Any], judge: JudgeSettings, seconds: float) -> Reply:
    """A function may answer in fields, or as text like a language model."""
    if set(values) == {"text"} and "text" not in judge.answer:
        return _reply(str(values["text"]), judge, 0, seconds)
    native = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
    try:
        return Reply("answered", check_answer(native, judge.answer), seconds=seconds)
    except InvalidAnswer as error:
        return Reply("invalid", {}, str(native)[:KEPT_TEXT], str(error), seconds=seconds)
