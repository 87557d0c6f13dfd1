"""Latency of one record, rows a second and bytes held, beside the champion's."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

import numpy as np
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import EncodedRows, Runner, RunnerPredictor

from .likeness import BATCH_ROWS

LEAST_CALLS = 30


@dataclass(frozen=True, slots=True)
class Effort:
    """Calls of one record, in at most ``latency_s`` seconds, and ``rounds`` of passes over a batch."""

    calls: int = 300
    latency_s: float = 2.0
    rounds: int = 9


@dataclass(frozen=True, slots=True)
class Cost:
    """Figures of one model on one device."""

    p50_ms: float
    p99_ms: float
    """``p50_ms`` and ``p99_ms``: from one record to its outputs, by the clock, encoding included; ``calls``
    of them were timed."""
    calls: int
    rows_per_s: float
    """Through the module alone, in batches."""
    memory_bytes: int
    """Parameters and buffers as they are held."""
    speed: float = 1.0
    """The champion's time over this one's, median of pairs of passes that were measured in turn: CPU seconds
    of the thread on a CPU, by the clock on other devices. 1.0 for the champion itself."""
    latency_speed: float = 1.0
    """The same of calls with one record."""
    smaller: float = 1.0
    """The champion's memory over this one's."""


def measure(
    runner: Runner,
    records: Batch,
    rows: EncodedRows,
    effort: Effort,
    *,
    champion: tuple[Runner, EncodedRows] | None = None,
) -> Cost:
    """Cost of a model on records and the rows that it encodes them as, in turn with the champion's."""
    singles = [records.slice(row, 1) for row in range(min(records.rows, 64))]
    both = [(runner, rows), *([] if champion is None else [champion])]
    calls = [_cycle(RunnerPredictor(each), singles) for each, _ in both]
    passes = [_cycle(each.run, _batches(each, encoded)) for each, encoded in both]
    latencies, latency_speed = _in_turn(
        calls, runner.device, warm=5, rounds=effort.calls, until_s=effort.latency_s
    )
    with torch.inference_mode():
        passed_s, speed = _in_turn(passes, runner.device, warm=1, rounds=effort.rounds)
    held = [held_bytes(each.module) for each, _ in both]
    return Cost(
        p50_ms=1e3 * float(np.quantile(latencies, 0.5)),
        p99_ms=1e3 * float(np.quantile(latencies, 0.99)),
        calls=len(latencies),
        rows_per_s=min(BATCH_ROWS, rows.count) / median(passed_s),
        memory_bytes=held[0],
        speed=speed,
        latency_speed=latency_speed,
        smaller=held[-1] / max(1, held[0]),
    )


def held_bytes(module: torch.nn.Module) -> int:
    """Bytes of parameters and buffers, shared ones once, quantised as packed."""
    seen: dict[tuple[torch.device, int], int] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        for part in _parts(tensor):
            seen[part.device, part.data_ptr()] = part.numel() * part.element_size()
    return sum(seen.values())


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Plain tensors inside of a tensor of a class of its own."""
    inner = tensor.data if isinstance(tensor, torch.nn.Parameter) else tensor
    if type(inner) is torch.Tensor or not hasattr(inner, "__tensor_flatten__"):
        yield inner
        return
    names, _ = inner.__tensor_flatten__()
    for name in names:
        yield from _parts(getattr(inner, name))


def _batches(runner: Runner, rows: EncodedRows) -> list[dict[str, torch.Tensor]]:
    """Whole batches on the runner's device, or one of all rows where they fill none."""
    size = min(BATCH_ROWS, rows.count)
    parts = [rows.slice(start, start + size) for start in range(0, rows.count - size + 1, size)]
    return [{name: tensor.to(runner.device) for name, tensor in part.tensors.items()} for part in parts]


def _cycle(call: Callable[[Any], object], given: Sequence[Any]) -> Callable[[int], object]:
    """``call`` of the n-th thing, from the first again after the last."""
    return lambda number: call(given[number % len(given)])


def _in_turn(
    calls: Sequence[Callable[[int], object]],
    device: torch.device,
    *,
    warm: int,
    rounds: int,
    until_s: float = inf,
) -> tuple[list[float], float]:
    """Seconds by the clock of the first, and the median of the second's work over it (1.0 without one).

    On a CPU work is the seconds of the thread itself, so that what runs beside it does not count.
    """
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    walls: list[float] = []
    ratios: list[float] = []
    end = time.perf_counter() + until_s
    for number in range(-warm, rounds):
        spent = []
        for call in calls:
            wall, start = time.perf_counter(), clock()
            call(number)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            spent.append((clock() - start, time.perf_counter() - wall))
        if number < 0:
            continue
        walls.append(spent[0][1])
        if spent[0][0]:
            ratios.append(spent[-1][0] / spent[0][0])
        if len(walls) >= LEAST_CALLS and time.perf_counter() > end:
            break
    return walls, median(ratios) if ratios else 1.0
