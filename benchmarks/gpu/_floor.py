"""What everything is held against: a loop over one static pass whose inputs lie on the device already."""

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch

from outrider.dataops.model_kinds.runner import EncodedRows, Tensors
from outrider.monitor.engine.device import CpuDevice, Device, InFlightBatch
from outrider.monitor.engine.executor import Executor, Segment

from ._scale import Kind

Job = tuple[Executor, EncodedRows, list[Segment]]


def synchronize(kind: Kind) -> None:
    """Wait until the device has nothing to do."""
    if kind == "cuda":
        torch.cuda.synchronize()


def static_pass(run: Callable[[], object], kind: Kind) -> Callable[[], None]:
    """What runs a pass again: the replay of a CUDA graph; on a CPU the pass itself."""

    def once() -> None:
        with torch.inference_mode():
            run()

    if kind == "cpu":
        return once
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # of torch
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            once()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        run()
    return graph.replay


def seconds_each(run: Callable[[], None], kind: Kind, seconds: float) -> float:
    """Seconds of one call, of as many as fit."""
    clock = time.perf_counter if kind == "cuda" else time.process_time
    took, calls = 0.0, 4
    while took < seconds:  # the last stretch counts: waiting for the device once in it is nothing
        calls = min(4 * calls, int(calls * 1.1 * seconds / took) + 1) if took else calls
        synchronize(kind)
        began = clock()
        for _ in range(calls):
            run()
        synchronize(kind)
        took = clock() - began
    return took / calls


def in_turn(runs: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """What each says in every round, one behind the other, so that all meet the same machine."""
    for run in runs:
        run()
    return [list(round_) for round_ in zip(*([run() for run in runs] for _ in range(rounds)), strict=True)]


def median_ratio(of: Sequence[float], over: Sequence[float]) -> float:
    """Median of the ratios of pairs that were measured beside each other."""
    return float(np.median(np.array(of) / np.array(over)))


class Fed:
    """A device that is given one batch behind the other.

    Parameters
    ----------
    jobs
        Taken in turn.
    """

    def __init__(self, device: Device, jobs: Sequence[Job]) -> None:
        self._device, self._jobs = device, jobs
        self._flights: deque[InFlightBatch] = deque()
        self._next = 0

    def once(self) -> None:
        """Let one batch take off, and the oldest land where as many are under way as may be."""
        if len(self._flights) == self._device.depth:
            self._flights.popleft().land()
        executor, rows, segments = self._jobs[self._next % len(self._jobs)]
        self._next += 1
        self._flights.append(self._device.fly(executor, rows, segments))

    def drain(self) -> None:
        """Let all land."""
        while self._flights:
            self._flights.popleft().land()

    def seconds(self, seconds: float) -> float:
        """Seconds of one job, of as many rounds of all as fit, once their shapes are captured."""
        for _ in range(3 * len(self._jobs)):
            self.once()
        self.drain()
        clock = time.process_time if isinstance(self._device, CpuDevice) else time.perf_counter
        began, rounds = clock(), 0
        while clock() - began < seconds:
            for _ in self._jobs:
                self.once()
            rounds += 1
        self.drain()
        return (clock() - began) / (rounds * len(self._jobs))


def noise(ours: torch.Tensor, reference: torch.Tensor) -> tuple[float, float]:
    """Largest difference of probabilities, and share of records on which an assertion says something else.

    The assertion fires where the two best classes are closer than they are in half of the reference's
    answers: a bound with as many records on either side as there can be.
    """
    left, right = ours.float().cpu().softmax(1), reference.float().cpu().softmax(1)
    margins = [(top[:, 0] - top[:, 1]) for top in (left.topk(2, 1).values, right.topk(2, 1).values)]
    bound = margins[1].quantile(0.5)  # between two records, not on one
    flips = ((margins[0] <= bound) != (margins[1] <= bound)).double().mean()
    return float((left - right).abs().max()), float(flips)


def answered(device: Device, executor: Executor, rows: EncodedRows, segments: list[Segment]) -> list[Tensors]:
    """Answers of a batch as the third of its shape, which a GPU replays."""
    return [device.fly(executor, rows, segments).land() for _ in range(3)][-1]
