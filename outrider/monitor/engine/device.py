"""Seam between engine and device: batches out, answers on CPU back."""

import time
from collections.abc import Sequence
from typing import Protocol

import torch

from outrider.dataops.model_kinds.runner import EncodedRows, Runner, Tensors

from .executor import Executor, Segment
from .pacing import Pacer


class InFlightBatch(Protocol):
    """A batch under way."""

    def land(self) -> list[Tensors]:
        """Raw answers of segments on the CPU, in order, awaited.

        Raises
        ------
        Exception
            Whatever the pass raised; `outrider.monitor.engine.faults.fault_of` says what to do about it.
        """


class Device(Protocol):
    """Device that runs passes.

    Flights land in the order in which they took off, each once, and before ``depth`` others have taken off
    behind it: the memory of a batch is used again.
    """

    device: torch.device
    depth: int
    """Batches that may be under way at once: with 2 or more the next one is copied while one computes."""
    busy_s: float
    """Seconds in which passes ran, of all that have landed."""

    def adopt(self, runner: Runner, /) -> Runner:
        """Model moved to the device, in the type of :class:`DeviceOptions`."""

    def fly(self, executor: Executor, rows: EncodedRows, segments: Sequence[Segment], /) -> InFlightBatch:
        """Begin a pass over forgettable CPU rows; errors come on landing.

        The device may pad rows and widths; what lands has as many rows as its segment.
        """

    def forget(self, executor: Executor, /) -> None:
        """Drop state of a stopped executor without flights under way."""

    def pause_s(self) -> float:
        """Seconds to the next pass; 0.0 unless ``duty`` is below 1."""


class Landed:
    """A flight whose answers, or whose error, are there already."""

    def __init__(self, answers: list[Tensors], error: Exception | None = None) -> None:
        self._answers, self._error = answers, error

    def land(self) -> list[Tensors]:
        """The answers."""
        if self._error is not None:
            raise self._error
        return self._answers


class CpuDevice:
    """Processor as a device: passes are over at take-off.

    Parameters
    ----------
    pacer
        Holds passes back; none unless ``duty`` is below 1.
    """

    depth = 1

    def __init__(self, pacer: Pacer | None = None) -> None:
        self.device = torch.device("cpu")
        self.busy_s = 0.0
        self._pacer = pacer or Pacer(1.0)

    def adopt(self, runner: Runner, /) -> Runner:
        """Same runner, unchanged."""
        return runner

    def fly(self, executor: Executor, rows: EncodedRows, segments: Sequence[Segment], /) -> InFlightBatch:
        """Run one pass."""
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

    def forget(self, executor: Executor, /) -> None:
        """Forget nothing: the processor keeps no state."""

    def pause_s(self) -> float:
        """Seconds until the next pass may begin."""
        return self._pacer.pause_s()
