"""Engine's GPU: memory, three lanes waiting for each other, captured passes."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

import torch

Lane = Literal["in", "compute", "out"]
"""Work of one lane runs in order; lanes run concurrently."""
T = TypeVar("T")


class Mark(Protocol): ...


class GpuCard(Protocol):
    """Interface of a GPU; tests replace it by a machine that runs lanes in any legal order."""

    device: torch.device

    def memory(self, nbytes: int, /, *, pinned: bool) -> torch.Tensor:
        """Bytes on the device, or page-locked on CPU for asynchronous copies."""

    def launch(self, lane: Lane, work: Callable[[], None], /, *, after: Sequence[Mark] = ()) -> Mark:
        """Queue work after marks and the lane's earlier work; return at once.

        ``work`` runs any time before its mark is reached.
        """

    def wait(self, mark: Mark, /) -> None: ...

    def seconds(self, mark: Mark, /) -> float: ...

    def settle(self) -> None: ...

    def capture(self, work: Callable[[], T], /) -> tuple[Callable[[], None], T]:
        """Capture ``work`` for replay on the compute lane, with its results, which another replay
        may overwrite. Raises where work cannot be captured."""


class CudaMark:
    """Two events around a stream's work; waiting leaves the processor to others."""

    def __init__(self, *, timed: bool) -> None:
        new = torch.cuda.Event
        self.begin = new(enable_timing=True) if timed else None  # type: ignore[no-untyped-call]  # of torch
        self.end = new(enable_timing=timed, blocking=True)  # type: ignore[no-untyped-call]  # of torch


class CudaCard:
    """A CUDA device.

    Streams have the default, lowest priority: nothing in this process waits for shadow models.
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
        if pinned:
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def launch(self, lane: Lane, work: Callable[[], None], /, *, after: Sequence[Mark] = ()) -> Mark:
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
        assert isinstance(mark, CudaMark)
        mark.end.synchronize()

    def seconds(self, mark: Mark, /) -> float:
        assert isinstance(mark, CudaMark)
        return 0.0 if mark.begin is None else mark.begin.elapsed_time(mark.end) / 1e3

    def capture(self, work: Callable[[], T], /) -> tuple[Callable[[], None], T]:
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
        torch.cuda.synchronize(self.device)
