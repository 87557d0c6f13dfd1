"""GPU behind the engine: copies in and out overlap with compute."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from outrider.dataops.model_kinds.runner import EncodedRows, Runner, Tensors
from outrider.errors import ConfigError
from outrider.monitor.engine.device import InFlightBatch, Landed
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.executor import Executor, Segment
from outrider.monitor.engine.faults import Fault, fault_of
from outrider.monitor.engine.pacing import Pacer
from outrider.monitor.engine.precision import narrow_weights

from .card import CudaCard, GpuCard, Mark
from .graphs import Graph, Graphs, result_specs
from .passes import Counting, Pass, plan_pass, width_of
from .staging import Arena, Specs, bytes_of, fill, specs_of, views

MPS_PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
"""1 lets CUDA MPS, where it runs, put kernels of this process behind those of others."""
DEPTH = 3
"""One batch computes, one is copied, and one is written into page-locked memory."""


class Slot:
    def __init__(self, card: GpuCard) -> None:
        def pinned(nbytes: int) -> torch.Tensor:
            return card.memory(nbytes, pinned=True)

        def on_device(nbytes: int) -> torch.Tensor:
            return card.memory(nbytes, pinned=False)

        self.staged, self.fed = Arena(pinned), Arena(on_device)
        self.answered, self.fetched = Arena(on_device), Arena(pinned)
        self.is_taken = False


@dataclass(slots=True)
class Leg:
    results: list[dict[str, torch.Tensor]] = field(default_factory=list)
    fetched: list[dict[str, torch.Tensor]] = field(default_factory=list)


class CudaFlight:
    def __init__(
        self, device: "CudaDevice", slot: Slot, this: Pass, leg: Leg, computed: Mark, fetched: Mark
    ) -> None:
        self._device, self._slot, self._pass, self._leg = device, slot, this, leg
        self._computed, self._fetched = computed, fetched

    def land(self) -> list[Tensors]:
        try:
            self._device.card.wait(self._fetched)
            self._device.landed(self._computed)
            return [
                {name: t[cut.start : cut.stop].clone() for name, t in self._leg.fetched[cut.result].items()}
                for cut in self._pass.cuts
            ]
        finally:
            self._leg.results = []
            self._slot.is_taken = False


class CudaDevice:
    def __init__(self, card: GpuCard, options: DeviceOptions) -> None:
        self.card = card
        self.device = card.device
        self.depth = DEPTH if options.duty == 1.0 else 1  # or passes would begin without a pause
        self.busy_s = 0.0
        self.replayed = self.launched = 0
        self.graphs = Graphs(card)
        self._options = options
        self._pacer = Pacer(options.duty)
        self._slots = [Slot(card) for _ in range(self.depth)]
        self._next = 0
        self._widest: dict[int, int] = {}
        self._met: dict[int, Executor] = {}  # held, or another may get its id

    def adopt(self, runner: Runner, /) -> Runner:
        if self._options.dtype == "bfloat16":
            narrow_weights(runner.module)
        runner.module.to(self.device)
        runner.device = self.device
        if self._options.compile:
            # What cannot be compiled, or not on this machine, runs as it is.
            torch._dynamo.config.suppress_errors = True
            runner.module.compile()
        return runner

    def fly(self, executor: Executor, rows: EncodedRows, segments: Sequence[Segment], /) -> InFlightBatch:
        slot = self._slots[self._next]
        if slot.is_taken:
            raise RuntimeError(
                f"{self.depth} batches are under way: land the oldest before the next takes off"
            )
        try:
            flight = self._begin(executor, rows, segments, slot)
        except Exception as error:  # noqa: BLE001 - a model may raise anything; it is raised on landing
            if fault_of(error) is Fault.MEMORY:
                self.graphs.clear()  # what they hold is not to keep half the batch from running
            return Landed([], error)
        slot.is_taken = True
        self._next = (self._next + 1) % self.depth
        return flight

    def forget(self, executor: Executor, /) -> None:
        self.card.settle()
        self.graphs.forget(id(executor))
        self._widest.pop(id(executor), None)
        self._met.pop(id(executor), None)

    def pause_s(self) -> float:
        return self._pacer.pause_s()

    def landed(self, computed: Mark) -> None:
        seconds = self.card.seconds(computed)
        self.busy_s += seconds
        self._pacer.ran(seconds)

    def _begin(
        self, executor: Executor, rows: EncodedRows, segments: Sequence[Segment], slot: Slot
    ) -> CudaFlight:
        owner = id(executor)
        if owner not in self._met:
            self.card.settle()  # its weights were moved and stacked on other streams than ours
            self._met[owner] = executor
        widest = self._widest[owner] = max(self._widest.get(owner, 0), width_of(rows) or 0)
        options = self._options
        this = plan_pass(
            executor, rows, segments, widest=widest, graphs=options.graphs, narrow=options.dtype == "bfloat16"
        )
        specs = (*this.specs, *specs_of(this.index))
        captures = self.graphs.captures
        graph = self.graphs.of(owner, this, specs)
        if graph is not None and captures == self.graphs.captures and isinstance(executor, Counting):
            executor.replayed(this.names)
        self._stage(slot, this, rows, specs)
        return self._launch(slot, this, specs, graph)

    def _stage(self, slot: Slot, this: Pass, rows: EncodedRows, specs: Specs) -> None:
        staged = views(slot.staged.block(bytes_of(specs)), specs)
        for name, tensor in rows.tensors.items():
            fill(staged[name], tensor, rows.padding.get(name, 0))
        for name, tensor in this.index.items():
            staged[name].copy_(tensor)

    def _launch(self, slot: Slot, this: Pass, specs: Specs, graph: Graph | None) -> CudaFlight:
        nbytes, leg = bytes_of(specs), Leg()
        staged, fed = slot.staged.block(nbytes), slot.fed.block(nbytes)

        def compute() -> None:
            if graph is None:
                leg.results = [dict(answers) for answers in this.run(views(fed, specs))]
                return
            graph.block.copy_(fed)
            graph.replay()
            leg.results = _packed(slot.answered, graph.results)

        def fetch() -> None:
            leg.fetched = _packed(slot.fetched, leg.results)

        copied = self.card.launch("in", lambda: _copy(fed, staged))
        computed = self.card.launch("compute", compute, after=[copied])
        fetched = self.card.launch("out", fetch, after=[computed])
        self.replayed += graph is not None
        self.launched += graph is None
        return CudaFlight(self, slot, this, leg, computed, fetched)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)


def _packed(arena: Arena, results: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    specs = result_specs(results)
    held = views(arena.block(bytes_of(specs)), specs)
    packed = []
    for at, answers in enumerate(results):
        into = {name: held[f"{at}:{name}"] for name in answers}
        for name, tensor in answers.items():
            _copy(into[name], tensor)
        packed.append(into)
    return packed


def wanted_card(options: DeviceOptions) -> GpuCard | None:
    """GPU that the options name, None for the processor; ConfigError where there is none."""
    if options.low_priority and options.device != "cpu":
        os.environ.setdefault(MPS_PRIORITY, "1")  # read when a process first turns to the driver
    if options.device == "cpu" or (options.device == "auto" and not torch.cuda.is_available()):
        return None
    device = torch.device("cuda" if options.device == "auto" else options.device)
    if device.type != "cuda":
        raise ConfigError(f"device: auto, cpu, cuda or cuda:N expected, got {options.device!r}")
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise ConfigError(
            f"device: {options.device!r} is asked for, but torch {torch.__version__} sees {count} CUDA "
            f"devices; install a build of torch for CUDA, or set device to cpu"
        )
    return CudaCard(device)
