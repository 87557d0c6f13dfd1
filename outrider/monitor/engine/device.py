"""Seam between engine and device: batches out, answers on CPU back."""

import time
from collections.abc import Sequence
from typing import Protocol

import torch

from outrider.dataops.model_kinds.runner import EncodedRows, Runner, Tensors

from .executor import Executor, Segment
from .pacing import Pacer


class InFlightBatch(Protocol):
    def land(self) -> list[Tensors]:
        """Raw answers of segments on the CPU, in order; raises whatever the pass raised (see
        `faults.fault_of`)."""


class Device(Protocol):
    """Device that runs passes.

    Flights land in take-off order, each once, before ``depth`` later ones have taken off: batch memory is
    reused.
    """

    device: torch.device
    depth: int
    """Batches under way at once; from 2, the next one is copied while one computes."""
    busy_s: float

    def adopt(self, runner: Runner, /) -> Runner: ...

    def fly(self, executor: Executor, rows: EncodedRows, segments: Sequence[Segment], /) -> InFlightBatch:
        """Begin a pass over CPU rows; errors come on landing. The device may pad rows and widths."""

    def forget(self, executor: Executor, /) -> None: ...

    def pause_s(self) -> float:
        """Seconds to the next pass; 0.0 unless ``duty`` is below 1."""


class Landed:
    def __init__(self, answers: list[Tensors], error: Exception | None = None) -> None:
        self._answers, self._error = answers, error

    def land(self) -> list[Tensors]:
        if self._error is not None:
            raise self._error
        return self._answers


class CpuDevice:
    """Processor as a device: passes run at take-off."""

    depth = 1

    def __init__(self, pacer: Pacer | None = None) -> None:
        self.device = torch.device("cpu")
        self.busy_s = 0.0
        self._pacer = pacer or Pacer(1.0)

    def adopt(self, runner: Runner, /) -> Runner:
        return runner

    def fly(self, executor: Executor, rows: EncodedRows, segments: Sequence[Segment], /) -> InFlightBatch:
        began = time.perf_counter()
        try:
            with torch.inference_mode():
                flight = Landed(executor.run(rows.tensors, segments))
        except Exception as error:  # noqa: BLE001 - a model may raise anything; it is raised on landing
            flight = Landed([], error)
        seconds = time.perf_counter() - began
        self.busy_s += seconds
        self._pacer.ran(seconds)
        return flight

    def forget(self, executor: Executor, /) -> None: ...

    def pause_s(self) -> float:
        return self._pacer.pause_s()
