"""Feeds: batches of pieces into models, answers back to asks."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch

from outrider.assertions import Batch, Predictor
from outrider.dataops.model_kinds.runner import EncodedRows, Tensors

from .asks import Name, Outputs, Poison
from .batching import AskPiece, Key, widths_of
from .collect import Collect, Encoded, OutputReader, Raw, cat
from .device import Device, InFlightBatch
from .executor import Executor, Segment, Shared
from .poison import around_poison, checked, first_reason, joined

Found = tuple[AskPiece, Collect, Raw | str]
"""Answer of a version to a piece, or why it cannot be read."""


@dataclass(frozen=True, slots=True)
class Fed:
    encoded: Encoded | None = None
    ranges: tuple[tuple[Key, int, int], ...] = ()
    poison: tuple[Poison, ...] = ()
    failure: str = ""


class Passing(Protocol):
    @property
    def pieces(self) -> list[AskPiece]: ...

    def land(self) -> list[Found]: ...


class Feed(Protocol):
    names: tuple[Name, ...]
    is_mixed: bool
    """Whether each version is fed its own rows, though in one batch."""
    reader: OutputReader

    def encode(self, batches: Sequence[Batch], name: Name, /) -> list[Fed]: ...

    def run(self, pieces: Sequence[AskPiece], /) -> Passing: ...

    def timed(self, piece: AskPiece, rows: int, /) -> float: ...

    def is_measured(self) -> bool:
        """True where trial passes cost only time."""

    def forwards(self, versions: int, /) -> int: ...


class TensorFeed:
    def __init__(self, executor: Executor, device: Device) -> None:
        self.executor = executor
        self.names = executor.names
        self.is_mixed = executor.is_mixed
        self.reader: OutputReader = _TensorReader(executor)
        self._device = device
        self._place = {name: at for at, name in enumerate(executor.names)}

    def is_measured(self) -> bool:
        return True

    def forwards(self, versions: int, /) -> int:
        return self.executor.forwards(versions) if isinstance(self.executor, Shared) else 1

    def encode(self, batches: Sequence[Batch], name: Name, /) -> list[Fed]:
        if len(batches) > 1:
            whole = Batch.concat(batches)
            with suppress(Exception):  # each by itself then, and says what is wrong with it
                rows = self._encode(name, whole, 0, whole.rows)
                ends = np.cumsum([batch.rows for batch in batches]).tolist()
                return [_fed([(0, b - a, rows.slice(a, b))], []) for a, b in pairwise([0, *ends])]
        return [self._encode_one(name, batch) for batch in batches]

    def _encode_one(self, name: Name, batch: Batch) -> Fed:
        parts, poison = around_poison(lambda start, stop: self._encode(name, batch, start, stop), batch.rows)
        if not parts:
            return Fed(failure=first_reason(poison))
        parts.sort(key=lambda part: part[0])
        return _fed(parts, poison)

    def _encode(self, name: Name, batch: Batch, start: int, stop: int) -> EncodedRows:
        part = batch if stop - start == batch.rows else batch.slice(start, stop - start)
        rows = self.executor.encode(name, part)
        if rows.count != stop - start:
            raise ValueError(f"encode: {stop - start} rows expected, got {rows.count}")
        return rows

    def run(self, pieces: Sequence[AskPiece], /) -> Passing:
        ordered = list(pieces)
        if len(self.names) > 1 and len(ordered) > 1:
            ordered.sort(key=lambda piece: [self._place[collect.name] for collect in piece.collects])
        rows = EncodedRows.concat([_rows_of(piece) for piece in ordered])
        segments = self._segments(ordered)
        return _TensorPass(ordered, self._device.fly(self.executor, rows, segments), segments)

    def _segments(self, pieces: Sequence[AskPiece]) -> list[Segment]:
        spans: dict[Name, tuple[int, int]] = {}
        at = 0
        for piece in pieces:
            stop = at + piece.rows * piece.repeats
            for collect in piece.collects:
                spans[collect.name] = (spans.get(collect.name, (at, 0))[0], stop)
            at = stop
        return [Segment(name, *spans[name]) for name in self.names if name in spans]

    def timed(self, piece: AskPiece, rows: int, /) -> float:
        """Seconds of a device pass; processor time on a single-thread CPU."""
        fed = piece.encoded.fed
        assert isinstance(fed, EncodedRows)
        index = piece.stop - 1 - (np.arange(rows, dtype=np.intp) % piece.rows)
        encoded = Encoded(fed.take(np.sort(index)), index)
        sample = AskPiece(encoded, piece.collects, 0, rows, piece.rank, piece.key)
        is_own = self._device.device.type == "cpu" and torch.get_num_threads() == 1
        clock: Callable[[], float] = time.thread_time if is_own else time.perf_counter
        began = clock()
        self.run([sample]).land()
        return clock() - began


@dataclass(frozen=True, slots=True)
class _TensorPass:
    pieces: list[AskPiece]
    flight: InFlightBatch
    segments: list[Segment]

    def land(self) -> list[Found]:
        answers = self.flight.land()
        outputs = {
            segment.name: (segment.start, _fault_in(tensors, segment) or tensors)
            for segment, tensors in zip(self.segments, answers, strict=True)
        }
        found: list[Found] = []
        at = 0
        for piece in self.pieces:
            for collect in piece.collects:
                start, tensors = outputs[collect.name]
                if not isinstance(tensors, str):
                    first = at - start
                    tensors = {key: t[first : first + piece.rows] for key, t in tensors.items()}
                found.append((piece, collect, tensors))
            at += piece.rows * piece.repeats
        return found


class _TensorReader:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def join(self, parts: list[Raw], /) -> Raw:
        return cat(parts)

    def take(self, answers: Raw, index: np.ndarray, /) -> Raw:
        rows = torch.from_numpy(index)
        return {name: tensor.index_select(0, rows) for name, tensor in answers.items()}

    def decode(self, name: Name, answers: Raw, /) -> Outputs:
        return self._executor.decode(name, answers)


class BatchFeed:
    """Feed of a Predictor: batches of one schema are joined, and nothing is measured, for a call may
    cost money."""

    is_mixed = False

    def __init__(self, name: Name, predict: Predictor) -> None:
        self.names: tuple[Name, ...] = (name,)
        self.reader: OutputReader = _OutputsReader()
        self._predict = predict

    def is_measured(self) -> bool:
        return False

    def forwards(self, versions: int, /) -> int:
        return versions

    def encode(self, batches: Sequence[Batch], name: Name, /) -> list[Fed]:  # noqa: ARG002 - there is one
        fed = []
        for batch in batches:
            encoded = Encoded(batch, np.arange(batch.rows, dtype=np.intp), is_as_asked=True)
            fed.append(Fed(encoded, (((batch.schema_digest, 0), 0, batch.rows),)))
        return fed

    def run(self, pieces: Sequence[AskPiece], /) -> Passing:
        batch = Batch.concat([part for piece in pieces for part in [_batch_of(piece)] * piece.repeats])
        try:
            outputs: Outputs | Exception = checked(self._predict(batch), batch.rows)
        except Exception as error:  # noqa: BLE001 - a model may raise anything; it is raised on landing
            outputs = error
        return _BatchPass(list(pieces), outputs)

    def timed(self, piece: AskPiece, rows: int, /) -> float:
        raise NotImplementedError(f"{piece.rows} of {rows} rows: calls of a Predictor are not timed")


@dataclass(frozen=True, slots=True)
class _BatchPass:
    pieces: list[AskPiece]
    outputs: Outputs | Exception

    def land(self) -> list[Found]:
        if isinstance(self.outputs, Exception):
            raise self.outputs
        found: list[Found] = []
        at = 0
        for piece in self.pieces:
            cut = {name: values[at : at + piece.rows] for name, values in self.outputs.items()}
            found += [(piece, collect, cut) for collect in piece.collects]
            at += piece.rows * piece.repeats
        return found


class _OutputsReader:
    def join(self, parts: list[Raw], /) -> Raw:
        ends = np.cumsum([len(next(iter(part.values()), ())) for part in parts]).tolist()
        ranges = zip([0, *ends], ends, parts, strict=False)
        return joined(list(ranges), ends[-1])

    def take(self, answers: Raw, index: np.ndarray, /) -> Raw:
        return {name: values[index] for name, values in answers.items()}

    def decode(self, name: Name, answers: Raw, /) -> Outputs:  # noqa: ARG002 - there is one
        return answers


def _fault_in(tensors: Tensors, segment: Segment) -> str:
    rows = segment.stop - segment.start
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor) or tensor.shape[:1] != (rows,):
            shape = tuple(getattr(tensor, "shape", ()))
            return f"{name}: a tensor of first dimension {rows} expected, got {type(tensor).__name__} {shape}"
    return ""


def _form_of(rows: EncodedRows) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    behind = 1 if rows.lengths is None else 2
    return tuple((name, str(t.dtype), tuple(t.shape[behind:])) for name, t in rows.tensors.items())


def _fed(parts: Sequence[tuple[int, int, EncodedRows]], poison: Sequence[Poison]) -> Fed:
    rows = EncodedRows.concat([part for _, _, part in parts])
    order = np.concatenate([np.arange(start, stop, dtype=np.intp) for start, stop, _ in parts])
    if rows.lengths is None:
        return Fed(Encoded(rows, order, not poison), (((_form_of(rows), 0), 0, rows.count),), tuple(poison))
    by_length = np.argsort(rows.lengths, kind="stable")
    rows = rows.take(by_length)
    return Fed(Encoded(rows, order[by_length]), tuple(_ranges_of(rows)), tuple(poison))


def _ranges_of(rows: EncodedRows) -> Iterator[tuple[Key, int, int]]:
    assert rows.lengths is not None
    form, widths = _form_of(rows), widths_of(np.maximum(rows.lengths, 1))
    edges = [0, *(np.flatnonzero(np.diff(widths)) + 1).tolist(), len(widths)]
    for start, stop in pairwise(edges):
        yield (form, int(widths[start])), start, stop


def _rows_of(piece: AskPiece) -> EncodedRows:
    fed = piece.encoded.fed
    assert isinstance(fed, EncodedRows)
    if piece.repeats == 1:
        return fed.slice(piece.start, piece.stop)
    return fed.take(np.tile(np.arange(piece.start, piece.stop, dtype=np.intp), piece.repeats))


def _batch_of(piece: AskPiece) -> Batch:
    fed = piece.encoded.fed
    assert isinstance(fed, Batch)
    return fed if piece.rows == fed.rows else fed.slice(piece.start, piece.rows)
