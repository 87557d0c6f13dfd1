"""Captured passes by shape, made on repetition, dropped when unused."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch

from outrider.monitor.engine.faults import Fault, fault_of

from .card import GpuCard
from .passes import Pass
from .staging import Specs, bytes_of, specs_of, views

log = logging.getLogger("outrider.engine")
GRAPHS = 96
"""Captured passes of one device: each holds its inputs and answers."""
SEEN = 1024


@dataclass(frozen=True, slots=True)
class Graph:
    block: torch.Tensor
    """Input as one block of bytes; see `staging`."""
    replay: Callable[[], None]
    results: list[dict[str, torch.Tensor]]


class Graphs:
    """Captured passes of executors.

    A shape is captured the second time it comes: the first pass lets libraries choose kernels and
    workspaces, which a capture must not do. ``refused`` executors read a value back or have shapes that
    depend on values.
    """

    def __init__(self, card: GpuCard, *, limit: int = GRAPHS) -> None:
        self._card = card
        self._limit = limit
        self._graphs: OrderedDict[tuple[int, Hashable], Graph] = OrderedDict()
        self._seen: OrderedDict[tuple[int, Hashable], None] = OrderedDict()
        self.refused: dict[int, str] = {}
        self.captures = 0

    def __len__(self) -> int:
        return len(self._graphs)

    def of(self, owner: int, this: Pass, specs: Specs) -> Graph | None:
        if this.key is None or owner in self.refused:
            return None
        key = (owner, this.key)
        if key in self._graphs:
            self._graphs.move_to_end(key)
            return self._graphs[key]
        if key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > SEEN:
                self._seen.popitem(last=False)
            return None
        if len(self._graphs) >= self._limit:
            self._card.settle()  # it may still be running
            self._graphs.popitem(last=False)
        graph = self._capture(key, this, specs)
        if graph is not None:
            self._graphs[key] = graph
        return graph

    def forget(self, owner: int) -> None:
        self.refused.pop(owner, None)
        for key in [key for key in self._graphs if key[0] == owner]:
            del self._graphs[key]
        for key in [key for key in self._seen if key[0] == owner]:
            del self._seen[key]

    def clear(self) -> None:
        self._card.settle()
        self._graphs.clear()
        self._seen.clear()

    def _capture(self, key: tuple[int, Hashable], this: Pass, specs: Specs) -> Graph | None:
        try:
            block = self._card.memory(bytes_of(specs), pinned=False)
            replay, results = self._card.capture(lambda: this.run(views(block, specs)))
        except Exception as error:
            fault = fault_of(error)
            if fault is Fault.MEMORY or (fault is Fault.DEVICE and not _is_refusal(error)):
                raise
            log.warning("a pass is run kernel by kernel, it cannot be captured: %s", error)
            self.refused[key[0]] = f"{type(error).__name__}: {error}"
            return None
        self.captures += 1
        return Graph(block, replay, [dict(answers) for answers in results])


def _is_refusal(error: Exception) -> bool:
    """True where CUDA refused a capture; the device is unharmed."""
    return "captur" in str(error).lower()


def result_specs(results: list[dict[str, torch.Tensor]]) -> Specs:
    return tuple((f"{at}:{n}", s) for at, answers in enumerate(results) for n, s in specs_of(answers))
