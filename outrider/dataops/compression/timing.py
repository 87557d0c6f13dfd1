"""Latency of one record, rows a second, bytes held; champion beside."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from statistics import median

import numpy as np
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import EncodedRows, Runner, RunnerPredictor

BATCH_ROWS = 64


@dataclass(frozen=True, slots=True)
class Effort:
    """Effort of a measurement: calls, seconds and rounds.

    Calls of one record take at most ``latency_s``; ``rounds`` are pairs of passes.
    """

    calls: int = 300
    latency_s: float = 2.0
    rounds: int = 9
    batch_rows: int = BATCH_ROWS


@dataclass(frozen=True, slots=True)
class Cost:
    """Figures of one model on one device."""

    p50_ms: float
    p99_ms: float
    """``p50_ms`` and ``p99_ms``: from one record to its outputs, by the clock, encoding included; ``calls``
    of them were timed."""
    calls: int
    rows_per_s: float
    """Through the module alone, in batches of ``Effort.batch_rows``."""
    speed: float
    """The champion's time over this one's, median of pairs of passes that were measured in turn: CPU seconds
    of the thread on a CPU, by the clock on other devices. 1.0 for the champion itself."""
    latency_speed: float
    """The same of calls with one record."""
    memory_bytes: int
    """Parameters and buffers as they are held."""


def measure(
    runner: Runner,
    beside: Runner | None,
    batch: Batch,
    rows: EncodedRows,
    effort: Effort,
    *,
    beside_rows: EncodedRows | None,
) -> Cost:
    """Cost of a model, measured in turn with another.

    Parameters
    ----------
    beside
        The champion, on the same device; None measures alone, with ``speed`` 1.0.
    batch, rows
        The same records, whole and as ``runner`` encodes them; at least one.
    beside_rows
        As ``beside`` encodes them.
    """
    latencies, latency_speed = _latencies(runner, beside, batch, effort)
    ours_s, ratios = _passes(runner, rows, beside, beside_rows, effort)
    fed = min(effort.batch_rows, rows.count)
    return Cost(
        p50_ms=1e3 * float(np.quantile(latencies, 0.5)),
        p99_ms=1e3 * float(np.quantile(latencies, 0.99)),
        calls=len(latencies),
        rows_per_s=fed / median(ours_s),
        speed=median(ratios) if ratios else 1.0,
        latency_speed=latency_speed,
        memory_bytes=held_bytes(runner.module),
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


def _latencies(
    runner: Runner, beside: Runner | None, batch: Batch, effort: Effort
) -> tuple[list[float], float]:
    """Seconds of calls with one record each by the clock, and the other's work over this one's."""
    both = [RunnerPredictor(each) for each in (runner, beside) if each is not None]
    singles = [batch.slice(row, 1) for row in range(min(batch.rows, 64))]
    for single in singles[:5]:
        for predictor in both:
            predictor(single)
    clock = _clock(runner)
    ours: list[float] = []
    ratios: list[float] = []
    until = time.perf_counter() + effort.latency_s
    for single in cycle(singles):
        spent = []
        for predictor in both:  # its answers are on the CPU: nothing is left running
            took, wall = _timed(lambda call=predictor, one=single: call(one), clock, runner.device)  # type: ignore[misc]  # bound now
            spent.append(took)
            if predictor is both[0]:
                ours.append(wall)
        ratios += [spent[1] / spent[0]] if len(spent) == 2 and spent[0] else []
        if len(ours) >= effort.calls or (len(ours) >= 30 and time.perf_counter() > until):
            break
    return ours, median(ratios) if ratios else 1.0


def _clock(runner: Runner) -> Callable[[], float]:
    """On a CPU the seconds that the thread itself worked, so that what runs beside it does not count."""
    return time.thread_time if runner.device.type == "cpu" else time.perf_counter


def _passes(
    runner: Runner, rows: EncodedRows, beside: Runner | None, beside_rows: EncodedRows | None, effort: Effort
) -> tuple[list[float], list[float]]:
    """Seconds by the clock of passes over batches, and the ratios of the other's time to this one's."""
    starts = range(0, rows.count, effort.batch_rows)
    fed = [_on_device(runner, rows.slice(start, start + effort.batch_rows)) for start in starts]
    whole = [each for each in fed if len(next(iter(each.values()))) == min(effort.batch_rows, rows.count)]
    other = []
    if beside is not None and beside_rows is not None:
        starts = range(0, len(whole) * effort.batch_rows, effort.batch_rows)
        other = [_on_device(beside, beside_rows.slice(start, start + effort.batch_rows)) for start in starts]
    clock = _clock(runner)
    ours, ratios = [], []
    with torch.inference_mode():
        for number in range(effort.rounds + 1):
            at = number % len(whole)
            spent, wall = _timed(lambda at=at: runner.run(whole[at]), clock, runner.device)  # type: ignore[misc]  # bound now
            their_s = 0.0
            if beside is not None and other:
                their_s, _ = _timed(lambda at=at: beside.run(other[at]), clock, beside.device)  # type: ignore[misc]
            if number:  # the first warms up
                ours.append(wall)
                ratios += [their_s / spent] if other and spent else []
    return ours, ratios


def _on_device(runner: Runner, rows: EncodedRows) -> dict[str, torch.Tensor]:
    return {name: tensor.to(runner.device) for name, tensor in rows.tensors.items()}


def _timed(
    work: Callable[[], object], clock: Callable[[], float], device: torch.device
) -> tuple[float, float]:
    """Seconds by ``clock`` and by the wall of one piece of work, the device's included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    wall, start = time.perf_counter(), clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start, time.perf_counter() - wall
