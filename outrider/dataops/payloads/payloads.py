"""Payload columns decoded as tensors, texts or bytes."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import null_column, tensor_array, tensor_type

from .columns import BINARY, FIELDS, PayloadForm, is_payload
from .images import MOST_PIXELS, DecodeGate, decode_image
from .roots import PayloadError
from .store import PayloadStore

DECODED_BYTES = 67_108_864
"""Approximate size of a block's decoded payloads: intake cuts blocks, and the worker units, to fit."""
THREADS = 8
MOST_BEGUN = 2
"""Batches fetched ahead: the stream's next, and the next of those skipped."""
MOST_HUNG = 64
"""Threads given up because a fetch never returned; with more, references fail at once."""


def rows_at_once(forms: Mapping[str, PayloadForm], *, payload_bytes: int, may_fetch: bool) -> int:
    """Most records to decode together, fetched payloads at greatest size."""
    per_row = sum(form.bytes_per_row or (payload_bytes if may_fetch else 0) for form in forms.values())
    return max(1, DECODED_BYTES // max(1, per_row))


@dataclass(frozen=True, slots=True)
class Opened:
    batch: Batch
    """Same rows; null where a payload could not be opened."""
    faults: dict[int, str] = field(default_factory=dict)

    @property
    def well(self) -> NDArray[np.intp]:
        return np.array([row for row in range(self.batch.rows) if row not in self.faults], dtype=np.intp)

    def take(self, rows: NDArray[np.intp]) -> "Opened":
        faults = {at: self.faults[row] for at, row in enumerate(rows.tolist()) if row in self.faults}
        return Opened(self.batch.take(rows), faults)


class Payloads:
    """Opens the payloads of one model; undeclared columns stay bytes."""

    def __init__(
        self,
        forms: Mapping[str, PayloadForm],
        store: PayloadStore,
        *,
        deadline_s: float = 10.0,
        max_pixels: int = MOST_PIXELS,
        rows_at_once: int = DECODED_BYTES,
    ) -> None:
        self._forms = dict(forms)
        self._store = store
        self._deadline_s = deadline_s
        self._max_pixels = max_pixels
        self._gate = DecodeGate()
        self._crew = Crew(THREADS, deadline_s)
        self._begun: list[Opening] = []
        self.rows_at_once = rows_at_once

    @classmethod
    def none(cls) -> "Payloads":
        return cls({}, PayloadStore(max_bytes=0))

    def begin(self, batch: Batch) -> "Opening | None":
        """None if the batch has no payloads."""
        names = payload_columns(batch)
        if not names:
            return None
        jobs: list[_Job] = []
        for name in names:
            form = self._forms.get(name, BINARY)
            column = batch.arrow(name)
            data, uri, sha256, _ = column.flatten()
            for row in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist():
                inline = data[row].as_buffer() if data[row].is_valid else None
                where = (uri[row].as_py(), sha256[row].as_py()) if inline is None else None
                jobs.append(_Job(name, row, self._work(form, inline, where)))
        self._crew.start([job.task for job in jobs])
        return Opening(batch, names, self._forms, jobs, self._crew)

    @property
    def may_refer(self) -> bool:
        return self._store.may_fetch

    def is_ready(self, batch: Batch) -> bool:
        """True if :meth:`open` will not wait; begins the fetch."""
        if not self._has_references(batch):
            return True
        begun = next((job for job in self._begun if job.batch is batch), None) or self.begin(batch)
        if begun is None:
            return True
        if begun not in self._begun:
            self._begun = [*self._begun[1 - MOST_BEGUN :], begun]
        return begun.is_done()

    def open(self, batch: Batch, rows: NDArray[np.intp] | None = None) -> Opened:
        begun = next((job for job in self._begun if job.batch is batch), None)
        if begun is not None:
            self._begun.remove(begun)
            return begun.result() if rows is None else begun.result().take(rows)
        if rows is not None and len(rows) < batch.rows:
            batch = batch.take(rows)
        opening = self.begin(batch)
        return Opened(batch) if opening is None else opening.result()

    def opened(self, batch: Batch, rows: NDArray[np.intp]) -> tuple[Batch, NDArray[np.intp]]:
        """Rows with readable payloads, as a batch and as numbers of ``batch``."""
        found = self.open(batch, rows)
        return (found.batch.take(found.well), rows[found.well]) if found.faults else (found.batch, rows)

    def _has_references(self, batch: Batch) -> bool:
        at = FIELDS.index("uri")
        return any(batch.arrow(name).flatten()[at].null_count < batch.rows for name in payload_columns(batch))

    def keep(self, batch: Batch) -> dict[int, str]:
        """Store referenced payloads; returns failed rows with reasons."""
        faults: dict[int, str] = {}
        for name in payload_columns(batch):
            _, uri, sha256, _ = batch.arrow(name).flatten()
            for row in np.flatnonzero(uri.is_valid().to_numpy(zero_copy_only=False)).tolist():
                try:
                    self._store.keep(uri[row].as_py(), sha256[row].as_py())
                except (PayloadError, OSError) as error:
                    faults[row] = f"{name}: {error}"
        return faults

    def _work(self, form: PayloadForm, inline: Any, where: tuple[str, str] | None) -> "PayloadTask":
        def work() -> Any:
            data = inline.to_pybytes() if where is None else self._store.read(*where)
            return _decoded(data, form, self._max_pixels, self._gate)

        return PayloadTask(work)


def payload_columns(batch: Batch) -> list[str]:
    return [field.name for field in batch.to_arrow().schema if is_payload(field.type)]


def without_payloads(batch: Batch) -> Batch:
    names = set(payload_columns(batch))
    if not names:
        return batch
    kept = [name for name in batch.names if name not in names]
    return Batch.from_arrow(batch.to_arrow().select(kept), model=batch.model)


def without_bytes(batch: Batch) -> Batch:
    """Columns of bytes are too large for pages or evidence."""
    kept = [f.name for f in batch.to_arrow().schema if not pa.types.is_binary(f.type)]
    if len(kept) == len(batch.names):
        return batch
    return Batch.from_arrow(batch.to_arrow().select(kept), model=batch.model)


def _decoded(data: bytes, form: PayloadForm, max_pixels: int, gate: DecodeGate) -> Any:
    if form.kind == "image":
        return decode_image(data, form, max_pixels=max_pixels, gate=gate)
    if form.kind == "binary":
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PayloadError(
            f"text in UTF-8 expected: byte 0x{data[error.start]:02x} at {error.start}"
        ) from None


@dataclass(slots=True)
class PayloadTask:
    work: Callable[[], Any]
    done: Future[Any] = field(default_factory=Future)
    began: float | None = None


@dataclass(slots=True)
class _Job:
    column: str
    row: int
    task: PayloadTask


class Opening:
    def __init__(
        self,
        batch: Batch,
        names: Sequence[str],
        forms: Mapping[str, PayloadForm],
        jobs: Sequence[_Job],
        crew: "Crew",
    ) -> None:
        self.batch = batch
        self._names = names
        self._forms = forms
        self._jobs = jobs
        self._crew = crew

    def is_done(self) -> bool:
        self._crew.give_up_late()
        return all(job.task.done.done() for job in self._jobs)

    def result(self) -> Opened:
        values: dict[str, list[Any]] = {name: [None] * self.batch.rows for name in self._names}
        faults: dict[int, str] = {}
        for job in self._jobs:
            while not job.task.done.done():
                self._crew.give_up_late()
                _wait(job.task.done)
            error = job.task.done.exception()
            if error is None:
                values[job.column][job.row] = job.task.done.result()
            elif isinstance(error, PayloadError):
                faults.setdefault(job.row, f"{job.column}: {error}")
            elif isinstance(error, Exception):  # of one record alone, whatever it is
                faults.setdefault(job.row, f"{job.column}: {type(error).__name__}: {error}")
            else:
                raise error
        columns = {name: _column(values[name], self._forms.get(name, BINARY)) for name in self._names}
        return Opened(self.batch.with_columns(columns), faults)


def _wait(done: "Future[Any]") -> None:
    try:
        done.exception(timeout=0.05)
    except TimeoutError:
        return


def _column(values: Sequence[Any], form: PayloadForm) -> pa.Array:
    if form.kind == "text":
        return pa.array(values, pa.string())
    if form.kind == "binary":
        return pa.array(values, pa.binary())
    missing = np.array([value is None for value in values], dtype=np.bool_)
    if missing.all():
        return null_column(len(values), tensor_type(form.shape))
    stacked = np.zeros((len(values), *form.shape), dtype=np.float32)
    for row, value in enumerate(values):
        if value is not None:
            stacked[row] = value
    return tensor_array(stacked, missing if missing.any() else None)


class Crew:
    """Daemon threads that run tasks; one past its deadline is replaced."""

    def __init__(self, threads: int, deadline_s: float) -> None:
        self._threads = threads
        self._deadline_s = deadline_s
        self._queue: SimpleQueue[PayloadTask] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: dict[int, PayloadTask] = {}
        self._alive = self._hung = 0

    def start(self, tasks: Sequence[PayloadTask]) -> None:
        with self._lock:
            while self._alive < min(self._threads, len(tasks)):
                self._hire()
        for task in tasks:
            self._queue.put(task)

    def give_up_late(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [
                (name, task)
                for name, task in self._running.items()
                if task.began is not None and now - task.began > self._deadline_s
            ]
            for name, task in late:
                del self._running[name]
                self._alive -= 1
                self._hung += 1
                if self._hung <= MOST_HUNG:
                    self._hire()
                task.done.set_exception(
                    PayloadError(f"not there after {self._deadline_s:g} s (intake.fetch_s of the model)")
                )
            if self._hung > MOST_HUNG:
                while not self._queue.empty():
                    self._queue.get().done.set_exception(
                        PayloadError(f"{self._hung} fetches hang; nothing more is fetched until they end")
                    )

    def _hire(self) -> None:
        self._alive += 1
        threading.Thread(target=self._run, daemon=True, name="payloads").start()

    def _run(self) -> None:
        me = threading.get_ident()
        while True:
            task = self._queue.get()
            task.began = time.monotonic()
            with self._lock:
                self._running[me] = task
            error: BaseException | None = None
            value: Any = None
            try:
                value = task.work()
            except BaseException as raised:  # noqa: BLE001 - raised again by the waiting thread
                error = raised
            with self._lock:
                if self._running.pop(me, None) is not task:
                    self._hung -= 1  # given up: another thread works in this one's place
                    return
                if error is None:
                    task.done.set_result(value)
                else:
                    task.done.set_exception(error)
