"""Assertions over a stream, in process. Windows continue from batch to batch, as in the service."""

import json
from collections.abc import Sequence
from datetime import datetime
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .assertion import Assertion
from .batch import SYSTEM, Batch
from .flags import FiredRows, Flags, Seen, flags_of, found_in
from .windows.entity_rows import concat, take
from .windows.group import Group
from .windows.state import View, WindowState
from .windows.window import Window

Ints = NDArray[np.int64]
REMEMBERED = 100_000
"""Number of subjects remembered per assertion; the oldest are forgotten."""


class StreamingChecker:
    """Assertions over batches that follow each other; made by :meth:`Checker.stream`.

    Flags do not depend on how records are cut into batches, nor on where the stream is saved and restored.
    Findings with the same subject are one flag: the first is kept.

    Examples
    --------
    >>> from outrider.assertions import Checker, Window, assertion
    >>> @assertion(window=Window(rows=2))
    ... def changed(view):
    ...     before = view.previous("inputs.x", null=0)
    ...     return (view.previous_rows() >= 0) & (view.column("inputs.x") != before)
    >>> batch = Batch.from_columns({"entity": ["a", "a"], "inputs.x": [1, 2]}, model="m")
    >>> stream = Checker([changed]).stream()
    >>> len(stream.check(batch.slice(0, 1))), len(stream.check(batch.slice(1))), len(stream.finish())
    (0, 1, 0)
    """

    def __init__(self, assertions: Sequence[Assertion]) -> None:
        self.assertions = tuple(assertions)
        windows = dict.fromkeys(judge.window for judge in assertions if judge.window is not None)
        self.windows: dict[Window | Group, WindowState] = {window: WindowState(window) for window in windows}
        self._model = ""
        self._records = 0
        self._seen: list[Seen] = [{} for _ in assertions]

    def check(self, batch: Batch) -> Flags:
        """Flags due with the records of a batch.

        Flags of windows may be about earlier records.

        Raises
        ------
        ValueError
            If an assertion returns a wrong shape or severity; the stream cannot continue after that.
        """
        numbers = self._records + np.arange(batch.rows)
        self._records += batch.rows
        self._model = batch.model
        views = {window: state.update(batch, numbers[:, None]) for window, state in self.windows.items()}
        return self._judge(views, batch, numbers)

    def advance(self, received: datetime) -> Flags:
        """Flags due if nothing more was received before ``received``."""
        if received.tzinfo is None:
            raise ValueError(f"a time with an offset expected, got {received!r}")
        at_us = round(received.timestamp() * 1e6)
        return self._judge({window: state.advance(at_us) for window, state in self.windows.items()})

    def finish(self) -> Flags:
        """Flags of all open windows at the end of the stream."""
        return self._judge({window: state.finish() for window, state in self.windows.items()})

    def checkpoint(self) -> bytes:
        """State as Arrow IPC, for :meth:`restore`."""
        facts = {
            "model": self._model,
            "records": self._records,
            "seen": [[judge.name, list(seen)] for judge, seen in self._seen_by_assertion],
        }
        keys = ["", *map(repr, self.windows)]
        payloads = [json.dumps(facts).encode(), *(state.checkpoint() for state in self.windows.values())]
        table = pa.RecordBatch.from_pydict({"window": keys, "state": pa.array(payloads, pa.large_binary())})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_batch(table)
        payload: bytes = sink.getvalue().to_pybytes()
        return payload

    @classmethod
    def restore(cls, assertions: Sequence[Assertion], payload: bytes) -> "StreamingChecker":
        """Stream from the state of :meth:`checkpoint`.

        Assertions missing from the state start with empty windows; state of other assertions is dropped.
        """
        stream = cls(assertions)
        with pa.ipc.open_stream(payload) as reader:
            saved = reader.read_next_batch().to_pydict()
        states = dict(zip(saved["window"], saved["state"], strict=True))
        facts = json.loads(states[""])
        stream._model, stream._records = facts["model"], facts["records"]
        known = {name: dict.fromkeys(subjects) for name, subjects in facts["seen"]}
        stream._seen = [known.get(judge.name, {}) for judge in stream.assertions]
        for window in stream.windows:
            if repr(window) in states:
                stream.windows[window] = WindowState.restore(window, states[repr(window)])
        return stream

    @property
    def _seen_by_assertion(self) -> list[tuple[Assertion, Seen]]:
        return list(zip(self.assertions, self._seen, strict=True))

    def _judge(
        self, views: dict[Window | Group, list[View]], batch: Batch | None = None, numbers: Ints | None = None
    ) -> Flags:
        found: list[FiredRows] = []
        sources: list[tuple[pa.RecordBatch, Ints]] = []
        if batch is not None and numbers is not None:
            sources.append((batch.to_arrow(), numbers))
        for code, (judge, known) in enumerate(self._seen_by_assertion):
            if judge.window is not None:
                found += [
                    found_in(judge, code, view.batch.own(), view.tags[:, 0], known)
                    for view in views[judge.window]
                ]
            elif batch is not None:
                found.append(found_in(judge, code, batch.own(), numbers, known))
        for known in self._seen:
            for old in list(islice(known, max(0, len(known) - REMEMBERED))):
                del known[old]
        sources += [(view.batch.to_arrow(), view.tags[:, 0]) for each in views.values() for view in each]
        return self._flags(found, sources)

    def _flags(self, found: list[FiredRows], sources: list[tuple[pa.RecordBatch, Ints]]) -> Flags:
        """Flags with a batch of the records that they refer to."""
        mentioned = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *map(_mentioned, found)]))
        tables, numbers, missing = [], [], mentioned
        for table, own in sources:
            rows = np.flatnonzero(np.isin(own, missing)) if len(missing) else np.zeros(0, dtype=np.int64)
            tables.append(take(table.select(list(SYSTEM)), rows))
            numbers.append(own[rows])
            missing = np.setdiff1d(missing, own[rows], assume_unique=True)
        if not tables:
            return flags_of(Batch.from_columns({}, model=self._model, rows=0), self.assertions, [])
        first = np.unique(np.concatenate(numbers), return_index=True)[1]
        batch = Batch(take(concat(tables), first), model=self._model)
        placed = [_placed(part, mentioned) for part in found]
        flags = flags_of(batch, self.assertions, placed)
        return Flags(batch, self.assertions, flags.row, flags.code, flags.severity, flags.details, mentioned)


def _mentioned(part: FiredRows) -> Ints:
    """Numbers of the records that findings refer to."""
    if part.findings is None or part.place is None:
        return part.rows
    rows = [*part.findings.members, part.findings.weak_labels.row]
    return np.concatenate([part.rows, *(part.place[each] for each in rows)])


def _placed(part: FiredRows, mentioned: Ints) -> FiredRows:
    place = None if part.place is None else np.searchsorted(mentioned, part.place)
    return FiredRows(part.code, np.searchsorted(mentioned, part.rows), part.severity, part.findings, place)
