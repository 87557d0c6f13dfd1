"""Partial calls from several exports until they are whole, and passages until a call needs them.

All of it is in memory, within bounds, and as notes in the journal: an export is acknowledged once its notes
are durable, and after a restart they are read back.
"""

import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from outrider.dataops.journal.notes import Note

from .call import Call, merged

MOST_CALLS = 4096
"""Calls given up at a time."""
OPEN_S = 600.0
"""How long passages are kept for calls of their trace, and questions of a call that has not ended."""
MOST_BYTES = 67_108_864
"""Of parts and of passages each; beyond, the oldest are given up early."""
MOST_DONE = 100_000
"""Calls remembered as records, so that what comes late makes no second one."""
MOST_PARTS = 4096
"""Of one call."""
MOST_TRACE_SPANS, MOST_TRACE_BYTES = 256, 4_194_304
"""Passages that one trace keeps; beyond, its oldest are given up."""
_CHECKSUM_BYTES = 4
_TEXT_BYTES = 64
_OVERHEAD_BYTES = 2048
"""Of one part in memory, in addition to its text."""
_CALL, _PASSAGES = "call", "passages"


FieldsToKeep = Callable[[str | None, Mapping[str, Any]], Mapping[str, Any]]


def _as_sent(_: str | None, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields


class Passages(msgspec.Struct, omit_defaults=True):
    trace: str
    span: str
    start_us: int
    texts: list[str]
    end_us: int | None = None

    @property
    def known_us(self) -> int:
        return self.start_us if self.end_us is None else self.end_us


@dataclass(slots=True)
class Met:
    """Result of matching an export with the waiting parts."""

    calls: list[tuple[Call, bool]] = field(default_factory=list)
    """Those that are records now, and whether each is partial."""
    put: list[Note] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    """Calls that are done once this is durable."""
    unfit: list[tuple[Call, str]] = field(default_factory=list)
    """Parts that cannot wait, and why."""
    size: int = 0
    waiting: int = 0
    late: int = 0


@dataclass(slots=True)
class _Open:
    parts: dict[str, Call] = field(default_factory=dict)
    due_us: int = 2**63 - 1
    size: int = 0
    seen: Call = field(default_factory=Call)
    """What makes a call whole, of all parts: merging these for each would cost their square."""
    is_leaving: bool = False
    """Whether it was given up: the record is being written."""

    def add(self, name: str, part: Call, size: int, due_us: int) -> None:
        self.parts[name] = part
        self.due_us = min(self.due_us, due_us)
        self.size += size
        self.seen.is_span |= part.is_span
        self.seen.has_inputs |= part.has_inputs
        self.seen.has_outputs |= part.has_outputs or "error" in part.attrs

    def call(self) -> Call:
        return merged(list(self.parts.values()))


@dataclass(slots=True)
class _Kept:
    name: str
    passages: Passages
    due_us: int
    size: int


@dataclass(slots=True)
class _Trace:
    """Passages of one trace by the names of their notes, oldest first."""

    kept: dict[str, _Kept] = field(default_factory=dict)
    size: int = 0

    @property
    def is_over(self) -> bool:
        return len(self.kept) > MOST_TRACE_SPANS or self.size > MOST_TRACE_BYTES


class Waiting:
    """Parts of calls, and passages, of all exports; safe to use from several threads."""

    def __init__(
        self,
        join_us: Callable[[Call], int],
        notes: Iterable[Note] = (),
        *,
        fields_to_keep: FieldsToKeep = _as_sent,
        model_of: Callable[[Call], str | None] = lambda _: None,
    ) -> None:
        self._join_us = join_us
        self._fields_to_keep = fields_to_keep
        self._model_of = model_of
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._traces: dict[str, _Trace] = {}
        self._bytes = {_CALL: 0, _PASSAGES: 0}
        self._done: dict[str, bool] = {}
        self._stale: list[str] = []
        for note in notes:
            self._recall(note)

    def meet(self, calls: Iterable[Call], passages: Iterable[Passages], now_us: int) -> Met:
        """Match an export with waiting parts; its own passages are seen by its calls already."""
        met = Met()
        with self._lock:
            notes = [(found.trace, self._keep(found, now_us)) for found in passages]
            # What its trace has given up meanwhile is not written at all.
            met.put = [note for trace, note in notes if self._holds(trace, note.name)]
            for call in calls:
                self._meet(call, met, now_us)
            met.remove += self._stale
            self._stale = []
        return met

    def passages(self, call: Call, most_bytes: int) -> tuple[list[str], int]:
        """Passages of the trace before a call's begin, oldest first, and their bytes; none above the bound.

        A span that still runs has nothing to give yet: it may be the tool in which the call is made.
        """
        with self._lock:
            trace = self._traces.get(call.trace)
            kept = list(trace.kept.values()) if trace is not None else []
        kept = [one for one in kept if one.passages.known_us <= call.start_us]
        size = sum(one.size for one in kept)
        if size > most_bytes:
            return [], size
        kept.sort(key=lambda one: one.passages.known_us)
        return [text for one in kept for text in one.passages.texts], size

    def due(self, now_us: int) -> Met:
        """Overdue calls, as far as known, and expired passages."""
        met = Met()
        with self._lock:
            self._shorten()
            for id_, entry in self._open.items():
                if entry.due_us <= now_us and len(met.calls) < MOST_CALLS:
                    call = entry.call()
                    entry.is_leaving = True
                    met.calls.append((call, not call.is_whole))
                    met.closed.append(id_)
                    met.remove += entry.parts
                    met.size += entry.size
            for kept in self._kept():
                if kept.due_us <= now_us:
                    met.remove.append(kept.name)
                    self._forget(kept)
            met.remove += self._stale
            self._stale = []
        return met

    def stepped(self, by_us: int) -> None:
        """Shift all deadlines over a step of the clock."""
        with self._lock:
            for entry in self._open.values():
                entry.due_us += by_us
            for kept in self._kept():
                kept.due_us += by_us

    def committed(self, met: Met) -> None:
        with self._lock:
            spans = {call.id: call.is_span for call, _ in met.calls}
            for id_ in met.closed:
                entry = self._open.pop(id_, None)
                if entry is not None:
                    self._bytes[_CALL] -= entry.size
                    # Parts that came while this was written are no longer waited for.
                    self._stale += entry.parts
                self._done[id_] = self._done.get(id_, False) or spans.get(id_, False)
            for note in met.put:
                # Written after the call was done: the order of commits is not that of arrivals.
                if note.name.startswith(f"{_CALL}:") and _id(note.name) not in self._open:
                    self._stale.append(note.name)
            while len(self._done) > MOST_DONE:
                del self._done[next(iter(self._done))]

    def failed(self, met: Met) -> None:
        """Note that ``met`` was not written; its removals are repeated later."""
        with self._lock:
            open_names = {name for entry in self._open.values() for name in entry.parts}
            self._stale += [name for name in met.remove if name not in open_names]

    def _meet(self, call: Call, met: Met, now_us: int) -> None:
        done = self._became(call.id)
        if call.is_whole:
            if done is False:  # its log events were given up on
                call.id += ":span"
                met.calls.append((call, True))
                return
            entry = self._open.get(call.id)
            met.remove += entry.parts if entry is not None else ()
            met.calls.append((call, False))
            met.closed.append(call.id)
            return
        if done is not None:
            met.late += 1
            if call.is_span and not done:
                call.id += ":span"
                met.calls.append((call, True))
            return
        try:
            payload = _packed(self._kept_call(call))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            met.unfit.append((call, f"its messages cannot be kept: {error}"))
            return
        name = f"{_CALL}:{call.id}:{zlib.crc32(payload):08x}"
        entry = self._add(name, call, len(payload), now_us)
        if name not in entry.parts:
            met.unfit.append((call, f"it has more than {MOST_PARTS} parts that wait for its span"))
            return
        if entry.seen.is_whole:
            met.calls.append((entry.call(), False))
            met.closed.append(call.id)
            met.remove += entry.parts
            return
        met.put.append(Note(name, now_us, payload))
        met.waiting += 1

    def _kept_call(self, call: Call) -> Call:
        """Part of a call as its note may hold it."""
        fields = {"inputs.": [call.inputs, call.tools, call.passages], "outputs.": call.answer}
        fields |= {"entity": call.conversation} | {f"attrs.{name}": each for name, each in call.attrs.items()}
        kept = self._fields_to_keep(self._model_of(call), fields)
        inputs, tools, passages = kept["inputs."]
        attrs = {name: kept[f"attrs.{name}"] for name in call.attrs}
        return msgspec.structs.replace(
            call,
            inputs=inputs,
            tools=tools,
            passages=passages,
            answer=kept["outputs."],
            conversation=kept["entity"],
            attrs=attrs,
        )

    def _became(self, id_: str) -> bool | None:
        """True if the record of a call has its span; None without a record, made or on its way."""
        entry = self._open.get(id_)
        if entry is not None and entry.is_leaving:
            return any(part.is_span for part in entry.parts.values())
        return self._done.get(id_)

    def _add(self, name: str, call: Call, size: int, now_us: int) -> _Open:
        entry = self._open.setdefault(call.id, _Open())
        is_fitting = len(entry.parts) < MOST_PARTS or call.is_span
        if is_fitting and name not in entry.parts:  # else a repeat of the export
            wait_us = self._join_us(call)
            wait_us = wait_us if call.has_ended else max(wait_us, int(OPEN_S * 1e6))
            entry.add(name, call, size + _OVERHEAD_BYTES, now_us + wait_us)
            self._bytes[_CALL] += size + _OVERHEAD_BYTES
        return entry

    def _keep(self, passages: Passages, now_us: int) -> Note:
        texts = self._fields_to_keep(None, {"inputs.": passages.texts})["inputs."]
        payload = _packed(msgspec.structs.replace(passages, texts=texts))
        size = len(payload) + _OVERHEAD_BYTES + _TEXT_BYTES * len(passages.texts)
        name = f"{_PASSAGES}:{passages.trace}-{passages.span}"
        trace = self._traces.setdefault(passages.trace, _Trace())
        if name not in trace.kept:
            trace.kept[name] = _Kept(name, passages, now_us + int(OPEN_S * 1e6), size)
            trace.size += size
            self._bytes[_PASSAGES] += size
            while trace.is_over:
                oldest = next(iter(trace.kept.values()))
                self._stale.append(oldest.name)
                self._forget(oldest)
        return Note(name, now_us, payload)

    def _holds(self, trace: str, name: str) -> bool:
        return trace in self._traces and name in self._traces[trace].kept

    def _kept(self) -> list[_Kept]:
        return [one for trace in self._traces.values() for one in trace.kept.values()]

    def _shorten(self) -> None:
        """Make the oldest due now, as long as there is too much."""
        over = self._bytes[_CALL] - MOST_BYTES
        for entry in self._open.values():
            if over <= 0:
                break
            entry.due_us, over = 0, over - entry.size
        over = self._bytes[_PASSAGES] - MOST_BYTES
        for kept in self._kept():
            if over <= 0:
                break
            kept.due_us, over = 0, over - kept.size

    def _forget(self, kept: _Kept) -> None:
        trace = self._traces[kept.passages.trace]
        del trace.kept[kept.name]
        trace.size -= kept.size
        self._bytes[_PASSAGES] -= kept.size
        if not trace.kept:
            self._traces.pop(kept.passages.trace, None)

    def _recall(self, note: Note) -> None:
        crc, packed = note.payload[:_CHECKSUM_BYTES], note.payload[_CHECKSUM_BYTES:]
        kind = note.name.partition(":")[0]
        if zlib.crc32(packed) != int.from_bytes(crc, "big") or kind not in (_CALL, _PASSAGES):
            self._stale.append(note.name)
        elif kind == _CALL:
            call = msgspec.msgpack.decode(packed, type=Call)
            self._add(note.name, call, len(packed), note.received_us)
        else:
            self._keep(msgspec.msgpack.decode(packed, type=Passages), note.received_us)


def _id(name: str) -> str:
    return name.split(":")[1]


def _packed(value: msgspec.Struct) -> bytes:
    packed = msgspec.msgpack.encode(value)
    return zlib.crc32(packed).to_bytes(_CHECKSUM_BYTES, "big") + packed
