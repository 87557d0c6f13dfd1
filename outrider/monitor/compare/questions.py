"""Question of recorded traffic: a request or inputs, with the recorded answer if any."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa

from outrider.assertions import Batch

MODEL = "compare"
"""Model name of all batches of a comparison."""
REQUEST = "inputs.request"
Members = dict[str, msgspec.Raw]
"""JSON object whose values stay undecoded."""
_DECODE = msgspec.json.Decoder(Members).decode


class NoQuestion(ValueError):  # noqa: N818 - reads as the thing it is
    """Record that cannot be asked as a question."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """Question with its recorded answer; names in ``inputs``, ``outputs`` and ``attrs`` have no prefix."""

    id: str | None = None
    entity: str | None = None
    ts: str | None = None
    body: bytes | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def named(self, id_: str) -> "RecordedQuestion":
        return self if self.id else replace(self, id=id_)


def members_of(body: bytes) -> Members:
    return _DECODE(body)


def value_of(members: Members, name: str) -> Any:
    found = members.get(name)
    return None if found is None else msgspec.json.decode(found)


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def chat_body(text: str) -> bytes:
    """Minimal chat request with one user message.

    Examples
    --------
    >>> chat_body("Hi")
    b'{"messages":[{"role":"user","content":"Hi"}]}'
    """
    return msgspec.json.encode({"messages": [{"role": "user", "content": text}]})


def batch_of(questions: Sequence[RecordedQuestion]) -> Batch:
    """Questions as columns; either all of them or none have a request body."""
    columns: dict[str, Any] = {"id": pa.array([each.id for each in questions], pa.string())}
    for name in ("entity", "ts"):
        values = [getattr(each, name) for each in questions]
        if any(value is not None for value in values):
            columns[name] = values
    if questions and questions[0].body is not None:
        columns[REQUEST] = pa.array([(each.body or b"").decode() for each in questions], pa.string())
    for part in ("inputs", "outputs", "attrs"):
        rows: list[Mapping[str, Any]] = [getattr(each, part) for each in questions]
        for name in dict.fromkeys(name for row in rows for name in row):
            columns[f"{part}.{name}"] = [row.get(name) for row in rows]
    if "ts" in columns:
        columns["ts"] = pa.array(columns["ts"], pa.string()).cast(pa.timestamp("us", tz="UTC"))
    return Batch.from_columns(columns, model=MODEL, rows=len(questions))
