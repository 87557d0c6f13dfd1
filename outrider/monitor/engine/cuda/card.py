"""Engine's GPU: memory, three lanes waiting for each other, captured passes."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

import torch

Lane = Literal["in", "compute", "out"]
"""Work of one lane runs in order; lanes run beside each other."""
T = TypeVar("T")


class Mark(Protocol):
    """The end of a piece of work."""


class GpuCard(Protocol):
    """Interface of a GPU for the engine.

    Tests put a machine in its place that runs lanes in any legal order.
    """

    device: torch.device

    def memory(self, nbytes: int, /, *, pinned: bool) -> torch.Tensor:
        """Bytes on the device, or page-locked on CPU for asynchronous copies."""

    def launch(self, lane: Lane, work: Callable[[], None], /, *, after: Sequence[Mark] = ()) -> Mark:
        """Queue work behind marks and its lane's earlier work; return at once.

        ``work`` may run now (issuing calls to the device) or later, but before its mark is reached.
        """

    def wait(self, mark: Mark, /) -> None:
        """Block until a piece of work ends; raise any device error."""

    def seconds(self, mark: Mark, /) -> float:
        """Seconds that a finished piece of work ran."""

    def settle(self) -> None:
        """Block until all issued work is done, copies of weights included."""

    def capture(self, work: Callable[[], T], /) -> tuple[Callable[[], None], T]:
        """Capture ``work`` for replay on the compute lane, with its results.

        Another replay may overwrite them, so they are taken away in the same piece of work. Raises where work
        cannot be captured.
        """


class CudaMark:
    """Two events around a stream's work; waiting leaves others the processor."""

    def __init__(self, *, timed: bool) -> None:
        new = torch.cuda.Event
        self.begin = new(enable_timing=True) if timed else None  # type: ignore[no-untyped-call]  # of torch
        self.end = new(enable_timing=timed, blocking=True)  # type: ignore[no-untyped-call]  # of torch


class CudaCard:
    """A CUDA device.

    Streams have the default priority, which is the lowest: nothing in this process waits for shadow models.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = torch.device(
            "cuda", torch.cuda.current_device() if device.index is None else device.index
        )
        torch.cuda.set_device(self.device)
        self._streams: dict[Lane, torch.cuda.Stream] = {
            lane: torch.cuda.Stream(self.device, priority=0)  # type: ignore[no-untyped-call]  # of torch
            for lane in ("in", "compute", "out")
        }
        # One pool for all captures: they never run at the same time, and their results are held.
        self._pool = torch.cuda.graph_pool_handle()

    def memory(self, nbytes: int, /, *, pinned: bool) -> torch.Tensor:
        """Bytes on the device, or page-locked ones."""
        if pinned:
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def launch(self, lane: Lane, work: Callable[[], None], /, *, after: Sequence[Mark] = ()) -> Mark:
        """Issue work on the stream of a lane."""
        stream, mark = self._streams[lane], CudaMark(timed=lane == "compute")
        with torch.cuda.stream(stream):
            for other in after:
                assert isinstance(other, CudaMark)
                stream.wait_event(other.end)
            if mark.begin is not None:
                mark.begin.record(stream)
            work()
            mark.end.record(stream)
        return mark

    def wait(self, mark: Mark, /) -> None:
        """Block until the event is reached."""
        assert isinstance(mark, CudaMark)
        mark.end.synchronize()

    def seconds(self, mark: Mark, /) -> float:
        """Time between the two events."""
        assert isinstance(mark, CudaMark)
        return 0.0 if mark.begin is None else mark.begin.elapsed_time(mark.end) / 1e3

    def capture(self, work: Callable[[], T], /) -> tuple[Callable[[], None], T]:
        """Capture the work as a CUDA graph.

        On the stream that replays it.
        """
        graph = torch.cuda.CUDAGraph()
        stream, before = self._streams["compute"], torch.cuda.current_stream(self.device)
        try:
            # Other threads (of pyarrow, of a debugger) may allocate meanwhile: only this one is watched.
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                results = work()
        finally:
            torch.cuda.set_stream(before)  # a capture that fails to end leaves its own stream behind
        return graph.replay, results

    def settle(self) -> None:
        """Block until the device has nothing to do."""
        torch.cuda.synchronize(self.device)
