"""Pass over a GPU batch, with a key for common capture."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from outrider.dataops.model_kinds.runner import EncodedRows, Tensors
from outrider.monitor.engine.asks import Name
from outrider.monitor.engine.executor import Executor, Segment

from .shapes import padded_rows, padded_width
from .staging import Specs, grown, specs_of

NARROW_ANSWERS = (torch.bfloat16, torch.float16)


@runtime_checkable
class Indexed(Protocol):
    """Mixed executor with its mixture as device data: one captured pass serves every mixture."""

    is_indexed: bool
    """False until a joint pass was verified; batches then go through ``run``."""

    def index(self, segments: Sequence[Segment], rows: int, /) -> dict[str, torch.Tensor]:
        """CPU tensors that assign rows to versions, shapes from ``rows`` alone; rows after the
        last segment are padding."""

    def run_indexed(self, tensors: Tensors, index: Tensors, /) -> Tensors:
        """Raw answers (rows, …) of all rows; ``index`` stays on the device."""


@runtime_checkable
class Counting(Protocol):
    def replayed(self, names: Sequence[Name], /) -> None: ...


@dataclass(frozen=True, slots=True)
class ResultSpan:
    result: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Pass:
    key: Hashable
    """Equal for passes that differ only in tensor values; None where none will be equal."""
    names: tuple[Name, ...]
    specs: Specs
    index: dict[str, torch.Tensor]
    run: Callable[[Tensors], list[Tensors]]
    cuts: tuple[ResultSpan, ...]


def plan_pass(
    executor: Executor,
    rows: EncodedRows,
    segments: Sequence[Segment],
    *,
    widest: int,
    graphs: bool,
    narrow: bool,
) -> Pass:
    """Pass that answers the segments of a batch; ``graphs`` pads shapes so that they recur, ``narrow``
    feeds bfloat16."""
    is_indexed = executor.is_mixed and isinstance(executor, Indexed) and executor.is_indexed
    fixed = graphs and (is_indexed or not executor.is_mixed)
    width = width_of(rows)
    count = padded_rows(rows.count) if fixed else rows.count
    if fixed and width is not None:
        width = padded_width(width, widest)
    types = {torch.float32: torch.bfloat16} if narrow else {}
    specs = grown(rows.tensors, rows=count, width=width, narrow=types)
    names = tuple(dict.fromkeys(s.name for s in segments))
    if is_indexed:
        return _indexed(executor, segments, count, specs, fixed)
    if executor.is_mixed:
        run = _running(executor, tuple(segments))
        cuts = tuple(ResultSpan(at, 0, s.stop - s.start) for at, s in enumerate(segments))
        return Pass(None, names, specs, {}, run, cuts)
    # All of its versions may answer all rows: which of them are wanted is the key, not of which rows.
    run = _running(executor, tuple(Segment(name, 0, count) for name in names))
    cuts = tuple(ResultSpan(names.index(s.name), s.start, s.stop) for s in segments)
    return Pass((names, specs) if fixed else None, names, specs, {}, run, cuts)


def width_of(rows: EncodedRows) -> int | None:
    if rows.lengths is None:
        return None
    return next((int(t.shape[1]) for t in rows.tensors.values() if t.ndim > 1), None)


def _indexed(executor: Executor, segments: Sequence[Segment], count: int, specs: Specs, fixed: bool) -> Pass:
    assert isinstance(executor, Indexed)
    owner: Indexed = executor
    index = owner.index(segments, count)
    fed = [name for name, _ in specs]

    @torch.inference_mode()
    def run(tensors: Tensors) -> list[Tensors]:
        records = {name: tensors[name] for name in fed}
        return [_widened(owner.run_indexed(records, {n: tensors[_marked(n)] for n in index}))]

    marked = {_marked(name): tensor for name, tensor in index.items()}
    key = ("~index", specs, specs_of(marked)) if fixed else None
    names = tuple(s.name for s in segments)
    return Pass(key, names, specs, marked, run, tuple(ResultSpan(0, s.start, s.stop) for s in segments))


def _marked(name: str) -> str:
    return f"~{name}"


def _running(executor: Executor, segments: tuple[Segment, ...]) -> Callable[[Tensors], list[Tensors]]:
    @torch.inference_mode()
    def run(tensors: Tensors) -> list[Tensors]:
        return [_widened(answers) for answers in executor.run(tensors, segments)]

    return run


def _widened(answers: Tensors) -> dict[str, torch.Tensor]:
    return {n: t.float() if t.dtype in NARROW_ANSWERS else t for n, t in answers.items()}
