"""Traffic of files as batches of questions, counted while reading."""

import base64
import contextlib
import warnings
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from outrider.assertions import Batch
from outrider.data_files import LeftOut, is_json, read_json_texts
from outrider.dataops.redaction.columns import redacted_rows, without_answers
from outrider.errors import ConfigError, SchemaMismatch
from outrider.monitor.files.captures import CaptureNames, Unreadable, kserve_event
from outrider.monitor.files.columns import Names
from outrider.monitor.files.readers import ReadOptions, find_files, read_blocks
from outrider.monitor.intake.protocols.chat_columns import CALLERS_KEYS

from .askable import KINDS, checked_kinds, is_secret, unsafe_kind
from .conversations import Conversations
from .line_forms import NO_CONTENT, ONLY_LABEL, chat_outputs, questions_of, recorded_answer, request_of
from .questions import MODEL, REQUEST, Members, NoQuestion, RecordedQuestion, batch_of, chat_body, members_of
from .redaction import Redaction

ROWS = 4096
BLOCK_BYTES = 16_000_000
"""Approximate maximum bytes of a batch; ``ROWS`` is its maximum number of questions."""
NAMED = 5
"""Maximum number of unreadable lines in a report."""
WAITING = 10_000
"""Maximum number of logged requests, and of responses, that wait for their counterpart."""
_OWN = {"inputs.received": pa.timestamp("us", tz="UTC"), "inputs.by_replica": pa.bool_()}
"""Columns that Outrider adds to its own files and that are no inputs, with their types."""
_TALK = ("request", "messages", "prompt", "text")


class Traffic:
    """Questions of files and folders, in order, read again by each iteration; kinds in ``safe`` are
    sent, too."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        drop: Iterable[str] = (),
        hash: Iterable[str] = (),
        safe: Iterable[str] = (),
    ) -> None:
        self._files = find_files(paths)
        if not self._files:
            raise ConfigError(f"--from: no file of records in {', '.join(map(str, paths)) or 'nothing'}")
        self._redaction = Redaction(drop, hash)
        self._safe = checked_kinds([*safe])
        self._start()

    def __iter__(self) -> Iterator[Batch]:
        self._start()
        for path, name in self._files:
            self._file = name
            for batch in self._of_texts(path, name) if is_json(path) else self._of_table(path, name):
                yield self._redacted_batch(batch)

    def funnel(self) -> dict[str, Any]:
        return {
            "seen": self._seen,
            "unreadable": self._unreadable,
            "not askable": sum(self._not_asked.values()),
            "askable": self._askable,
            "reasons": [{"reason": why, "count": count} for why, count in self._not_asked.most_common()],
            "lines": self._lines,
            "came redacted": self._came_redacted,
            "redacted": sorted(self._redaction.matched),
            "not_redacted": sorted(self._redaction.names - self._redaction.matched),
        }

    def _redacted_batch(self, batch: Batch) -> Batch:
        """Redact and count a batch; if a record came redacted, its recorded answer is dropped,
        since the original question is lost."""
        before = redacted_rows(batch)
        if before.any():
            batch = without_answers(batch, before)
            self._came_redacted += int(before.sum())
        redacted = self._redaction.batch(batch)
        self._check_names(redacted)
        self._askable += redacted.rows
        return self._with_conversations(redacted)

    def _with_conversations(self, batch: Batch) -> Batch:
        """Fill in missing conversation ids, from the first messages of each chat."""
        if not batch.has(REQUEST):
            return batch
        bodies, named = batch.arrow(REQUEST).to_pylist(), batch.arrow("entity").to_pylist()
        entities = [
            name or (self._conversations.name(body) if isinstance(body, str) else None)
            for name, body in zip(named, bodies, strict=True)
        ]
        return batch.with_columns({"entity": pa.array(entities, pa.string())})

    def _start(self) -> None:
        self._file = ""
        self._seen = self._unreadable = self._askable = self._came_redacted = 0
        self._lines: list[dict[str, Any]] = []
        self._not_asked: Counter[str] = Counter()
        self._is_checked = False
        self._waiting = _Waiting()
        self._conversations = Conversations()

    def _blame(self, row: int, reason: str) -> None:
        self._seen += 1
        self._unreadable += 1
        if len(self._lines) < NAMED:
            self._lines.append({"file": self._file, "line": row, "reason": reason[:200]})

    def _check_names(self, batch: Batch) -> None:
        """Raise if the first batch lacks a column that is to be dropped or redacted: it may be a typo."""
        if self._is_checked:
            return
        self._is_checked = True
        inside = f"{REQUEST}."
        missing = [
            n for n in sorted(self._redaction.names - self._redaction.matched) if not n.startswith(inside)
        ]
        if missing and missing[0] not in ("id", "entity"):
            there = ", ".join(name for name in batch.names if "." in name)
            raise ConfigError(f"--drop, --hash: no column {missing[0]} in {self._file}; there are {there}")

    # ---- texts ---------------------------------------------------------------------------------------------

    def _of_texts(self, path: Path, name: str) -> Iterator[Batch]:
        questions = self._questions((place, text) for place, text, _ in read_json_texts(path))
        yield from self._batches(chain(questions, self._unanswered()), name)

    def _unanswered(self) -> Iterator[tuple[int, RecordedQuestion]]:
        waiting, self._waiting = self._waiting, _Waiting()
        yield from waiting.rest()

    def _questions(self, texts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, RecordedQuestion]]:
        """Questions with line numbers; a logger's requests and responses are joined."""
        for place, text in texts:
            try:
                event = _event(text)
                found = questions_of(text) if event is None else self._waiting.joined(event)
            except Unreadable as error:
                self._blame(place, str(error))
                continue
            except NoQuestion as error:
                self._seen += 1
                self._not_asked[error.reason] += 1
                continue
            yield from ((place, each) for each in found)

    def _batches(self, questions: Iterable[tuple[int, RecordedQuestion]], name: str) -> Iterator[Batch]:
        block: list[RecordedQuestion] = []
        size = at = 0
        before = 0
        for place, question in questions:
            at = at + 1 if place == before else 0
            before = place
            self._seen += 1
            asked = self._checked(question.named(f"{name}:{place}" if not at else f"{name}:{place}:{at}"))
            if asked is None:
                continue
            is_other = bool(block) and (block[0].body is None) != (asked.body is None)
            if len(block) >= ROWS or size >= BLOCK_BYTES or is_other:
                yield from self._batch(block)
                block, size = [], 0
            block.append(asked)
            size += len(asked.body or b"") + 100
        yield from self._batch(block)

    def _batch(self, block: list[RecordedQuestion]) -> Iterator[Batch]:
        """Build a batch; a block whose values have no common type is split in halves."""
        if not block:
            return
        try:
            yield batch_of(block)
        except (SchemaMismatch, pa.ArrowException) as error:
            if len(block) == 1:
                self._seen -= 1
                self._blame(0, f"record {block[0].id}: {error}")
                return
            yield from self._batch(block[: len(block) // 2])
            yield from self._batch(block[len(block) // 2 :])

    def _checked(self, question: RecordedQuestion) -> RecordedQuestion | None:
        if question.body is None:
            return question
        try:
            request = members_of(question.body.decode().encode())
            kind = self._why_not(request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._seen -= 1
            self._blame(0, f"record {question.id}: a request in JSON expected: {error}")
            return None
        if kind:
            self._not_asked[kind] += 1
            return None
        return self._redacted(question, request)

    def _why_not(self, request: Members) -> str:
        if bytes(request.get("messages", b"")) in (b"", b"[]", b"null") and "prompt" not in request:
            return NO_CONTENT
        kind = unsafe_kind(request, self._safe)
        return f"{KINDS[kind]} (--safe-to-ask {kind})" if kind else ""

    def _redacted(self, question: RecordedQuestion, request: Members) -> RecordedQuestion:
        is_changed = self._redaction.members(request)
        for name in CALLERS_KEYS:
            is_changed |= request.pop(name, None) is not None
        return replace(question, body=msgspec.json.encode(request)) if is_changed else question

    # ---- tables --------------------------------------------------------------------------------------------

    def _of_table(self, path: Path, name: str) -> Iterator[Batch]:
        how = ReadOptions(Names(), CaptureNames(), ROWS)
        left = LeftOut(self._blame)
        is_asked = False
        for block in read_blocks(path, name, how, left):
            if not isinstance(block.rows, pa.Table):
                texts = (
                    (place, msgspec.json.encode(row))
                    for place, row in zip(block.places, block.rows, strict=True)
                )
                yield from self._batches(self._questions(texts), name)
            elif block.route == "records":
                yield from self._of_columns(block.rows, block.places, name)
                is_asked = True
            elif not is_asked:
                self._seen += len(block)
                self._not_asked[ONLY_LABEL] += len(block)
        yield from self._batches(self._unanswered(), name)
        for sentence in left.sentences(path):
            warnings.warn(sentence, stacklevel=2)

    def _of_columns(self, table: pa.Table, places: Sequence[int], name: str) -> Iterator[Batch]:
        """Batches of a table; a table of requests is parsed row by row."""
        unwanted = [each for each in table.column_names if is_secret(each) or _is_own(table, each)]
        table = _conversations(table.drop_columns(unwanted))
        inputs = [each.removeprefix("inputs.") for each in table.column_names if each.startswith("inputs.")]
        if "request" in inputs or "messages" in inputs or inputs in (["prompt"], ["text"]):
            yield from self._batches(self._of_rows(table, places, inputs), name)
            return
        self._seen += len(table)
        if not inputs:
            self._not_asked[NO_CONTENT] += len(table)
            return
        yield Batch.from_arrow(table, model=MODEL)

    def _of_rows(
        self, table: pa.Table, places: Sequence[int], names: list[str]
    ) -> Iterator[tuple[int, RecordedQuestion]]:
        times = table.column("ts").cast(pa.string()).to_pylist() if "ts" in table.column_names else None
        if times is not None:
            table = table.drop_columns(["ts"])
        for row, (place, item) in enumerate(zip(places, table.to_pylist(), strict=True)):
            parts: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}, "attrs": {}}
            for column, value in item.items():
                part, _, short = column.partition(".")
                if value is not None and part in parts:
                    parts[part][short] = value
            try:
                question = _of_parts(parts, names)
            except (msgspec.MsgspecError, Unreadable, TypeError) as error:
                self._blame(place, str(error))
                continue
            ts = None if times is None else times[row]
            yield place, _placed(question, item.get("id"), item.get("entity"), ts)


class _Waiting:
    def __init__(self) -> None:
        self._requests: OrderedDict[str, bytes] = OrderedDict()
        self._responses: OrderedDict[str, bytes] = OrderedDict()

    def joined(self, event: Mapping[str, Any]) -> list[RecordedQuestion]:
        """Questions completed by this event, and the oldest one if too many wait."""
        try:
            id_, body = str(event["id"]), base64.b64decode(event.get("data_base64", ""), validate=True)
        except (ValueError, TypeError) as error:
            raise Unreadable(f"data_base64: base64 expected: {error}") from None
        is_request = ".request" in event["type"]
        mine, other = (self._requests, self._responses) if is_request else (self._responses, self._requests)
        if id_ in other:
            match = other.pop(id_)
            return self._questions(id_, *((body, match) if is_request else (match, body)))
        mine[id_] = body
        if len(mine) <= WAITING:
            return []
        oldest, kept = mine.popitem(last=False)
        return self._questions(oldest, kept, None) if is_request else []

    def rest(self) -> Iterator[tuple[int, RecordedQuestion]]:
        """Questions of requests without a response."""
        for id_, body in self._requests.items():
            with contextlib.suppress(Unreadable, NoQuestion):
                yield from ((0, each) for each in self._questions(id_, body, None))

    def _questions(self, id_: str, request: bytes, response: bytes | None) -> list[RecordedQuestion]:
        members: dict[str, Any] = {"id": id_, "request": msgspec.Raw(request)}
        if not _is_json(request):
            raise Unreadable(f"a request in JSON expected, got {request[:40]!r}")
        if response is not None:
            is_json = _is_json(response)
            members["response"] = msgspec.Raw(response) if is_json else response.decode("utf-8", "replace")
        return questions_of(msgspec.json.encode(members))


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _event(text: bytes) -> Mapping[str, Any] | None:
    if b"inference." not in text:
        return None
    try:
        item = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(item, dict):
        return None
    if "specversion" in item and "inference." in str(item.get("type")) and "id" in item:
        data = item.get("data_base64") or base64.b64encode(msgspec.json.encode(item.get("data"))).decode()
        return {"id": item["id"], "type": item["type"], "data_base64": data}
    return kserve_event(item)


def _of_parts(parts: Mapping[str, dict[str, Any]], names: list[str]) -> RecordedQuestion:
    inputs, attrs, outputs = parts["inputs"], parts["attrs"], parts["outputs"]
    response = inputs.pop("response", None)
    answer = chat_outputs(outputs) if response is None else recorded_answer(response)
    body = request_of(inputs, attrs)
    only = names[0]
    if body is None and only in _TALK[2:] and isinstance(inputs.get(only), str):
        body = chat_body(inputs[only])
    if body is None:
        raise Unreadable(f"inputs.{only}: a request expected, got {str(inputs.get(only))[:80]!r}")
    return RecordedQuestion(body=body, outputs=answer, attrs=attrs)


def _placed(question: RecordedQuestion, id_: Any, entity: Any, ts: str | None) -> RecordedQuestion:
    return replace(question, id=id_, entity=entity, ts=ts)


def _is_own(table: pa.Table, name: str) -> bool:
    """True for a column that Outrider adds to its own files."""
    kind = _OWN.get(name)
    return name in ("model", "received") or name.startswith("label.") or table.schema.field(name).type == kind


def _conversations(table: pa.Table) -> pa.Table:
    names = table.column_names
    if "inputs.conversation" not in names or "entity" in names:
        return table
    renamed = ["entity" if name == "inputs.conversation" else name for name in names]
    return table.rename_columns(renamed)
