"""Answers of LLM judges: cache, spending of the day, labelled pairs.

The cache is by question; pairs are compared with human labels.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select

from outrider.assertions import Batch
from outrider.assertions.comparison.matching import spelled_like

from .ledger.counters import add_counts, read_counts
from .state.improvement_tables import Label
from .state.rows import replace_rows
from .state.tables import Answer, JudgeAnswer, Record, table_of

_CACHE = table_of(JudgeAnswer)
RECENT_LABELS = 20_000
PREFIX = "judge."


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply to one question."""

    outcome: str
    """``answered``; ``invalid`` when the answer is not of the judge's schema; ``unavailable`` when none
    came."""
    answer: Mapping[str, Any]
    """Value per field; empty unless answered."""
    text: str = ""
    """What the judge wrote, kept where it could not be used."""
    detail: str = ""
    tokens: int = 0
    seconds: float = 0.0
    spent: bool = True
    """Whether the question counts against the budget: it was answered, or its deadline passed."""


def slot_of(judge: str) -> str:
    """Slot of a judge, for its answers and its cursor."""
    return f"{PREFIX}{judge}"


def version_of(judge: str, digest: str) -> str:
    """Name of a judge's version, for its stored answers."""
    return f"{PREFIX}{judge}@{digest}"


def known_replies(connection: Connection, digest: str, questions: Sequence[str]) -> dict[str, Reply]:
    """Stored replies by question digest; unavailable ones may be asked again."""
    found = {}
    for start in range(0, len(questions), 500):
        part = questions[start : start + 500]
        query = select(_CACHE).where(_CACHE.c.judge == digest, _CACHE.c.input_digest.in_(part))
        for row in connection.execute(query):
            told = json.loads(row.answer)
            if told["outcome"] != "unavailable":
                found[row.input_digest] = Reply(
                    told["outcome"], told.get("answer", {}), told.get("text", ""), told.get("detail", "")
                )
    return found


def store_replies(
    connection: Connection,
    *,
    model: str,
    judge: str,
    digest: str,
    replies: Mapping[str, Reply],
    at_us: int,
) -> None:
    """Store replies and count their cost; later replies replace unavailable ones."""
    rows = [
        (digest, question, _json(reply), reply.tokens, reply.seconds, at_us)
        for question, reply in replies.items()
    ]
    replace_rows(connection, JudgeAnswer, rows)
    spent = [reply for reply in replies.values() if reply.spent]
    tokens = sum(reply.tokens for reply in spent)
    day = day_of(at_us)
    counts = {"asked": len(spent), "tokens": tokens, f"asked:{day}": len(spent), f"tokens:{day}": tokens}
    counts["milliseconds"] = round(sum(reply.seconds for reply in spent) * 1000)
    add_counts(connection, model, slot_of(judge), counts)


def spent_today(connection: Connection, model: str, judge: str, at_us: int) -> tuple[int, int]:
    """Questions and tokens of the day (UTC) that ``at_us`` falls into."""
    found = counts_of(connection, model, judge)
    day = day_of(at_us)
    return found.get(f"asked:{day}", 0), found.get(f"tokens:{day}", 0)


def counts_of(connection: Connection, model: str, judge: str) -> dict[str, int]:
    """Counters ``asked tokens milliseconds`` of a judge, and per record outcome."""
    return read_counts(connection, model, slot_of(judge))


def failures_of(connection: Connection, digest: str, *, limit: int = 5) -> list[dict[str, Any]]:
    """Newest unusable replies of one version, with their text."""
    query = (
        select(_CACHE.c.answer, _CACHE.c.at_us)
        .where(_CACHE.c.judge == digest, _CACHE.c.answer.not_like('{"outcome": "answered"%'))
        .order_by(_CACHE.c.at_us.desc())
        .limit(limit)
    )
    return [json.loads(row.answer) | {"at_us": row.at_us} for row in connection.execute(query)]


def labelled_pairs(
    connection: Connection, model: str, version: str, *, field: str, label: str
) -> list[tuple[str, str]]:
    """Pairs of judge's value and label, as comparable texts.

    Of each record that has both; texts are equal where the values are. Of several labels the latest counts.

    Parameters
    ----------
    version
        As :func:`version_of` gives it.
    field, label
        Field of the judge's answer, and field of the labels that says what it should be.
    """
    labels, records, answers = table_of(Label), table_of(Record), table_of(Answer)
    query = (
        select(labels.c.record_id, labels.c.label, records.c.seq)
        .join(records, (records.c.model == labels.c.model) & (records.c.id == labels.c.record_id))
        .where(labels.c.model == model)
        .order_by(labels.c.seq.desc(), labels.c.row.desc())
        .limit(RECENT_LABELS)
    )
    truth: dict[str, Any] = {}
    blocks: set[int] = set()
    for row in connection.execute(query):
        stated = _parsed(row.label)
        value = stated.get(label)
        if row.record_id in truth or (stated and value is None):
            continue
        truth[row.record_id] = value  # None: withdrawn
        if value is not None:
            blocks.add(row.seq)
    pairs = []
    for part in _parts(sorted(blocks), 500):
        stored = select(answers.c.payload).where(
            answers.c.model == model, answers.c.version == version, answers.c.seq.in_(part)
        )
        for payload in connection.execute(stored).scalars():
            batch = Batch.from_ipc(payload)
            if not batch.has(f"outputs.{field}"):
                continue
            outputs = batch.to_arrow().column(f"outputs.{field}").to_pylist()
            pairs += [
                (value, truth[key])
                for key, value in zip(batch.keys.tolist(), outputs, strict=True)
                if value is not None and truth.get(key) is not None
            ]
    values = spelled_like([value for _, value in pairs], [value for value, _ in pairs])
    return [(str(value), str(told)) for (value, _), told in zip(pairs, values, strict=True)]


def day_of(at_us: int) -> str:
    """Date, UTC, in which budgets are counted."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).date().isoformat()


def _json(reply: Reply) -> str:
    told: dict[str, Any] = {"outcome": reply.outcome}
    if reply.outcome == "answered":
        told["answer"] = dict(reply.answer)
    else:
        told |= {"detail": reply.detail, "text": reply.text}
    return json.dumps(told)


def _parsed(label: object) -> Mapping[str, Any]:
    found = json.loads(label) if isinstance(label, str) else label
    return found if isinstance(found, Mapping) else {}


def _parts(values: list[int], size: int) -> Iterable[list[int]]:
    return (values[start : start + size] for start in range(0, len(values), size))
