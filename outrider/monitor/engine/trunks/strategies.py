"""Strategies for a trunk's joint answers, and finding the trusted one."""

import logging
from collections.abc import Sequence
from typing import Protocol

from outrider.dataops.model_kinds.runner import Runner, Tensors
from outrider.monitor.engine.faults import Fault, fault_of

from .memo import LeafForward, Memo, leaf_forwards
from .merged import MergedGraph, NotTraceable
from .sharing import Sharing, is_same
from .writes import Kept, WriteGuard, WritesIntoShared

log = logging.getLogger("outrider.engine")


class Way(Protocol):
    saves: bool

    def run(self, tensors: Tensors, /) -> list[Tensors]: ...

    def check(self, tensors: Tensors, /) -> list[Tensors]:
        """Run slower, raising WritesIntoShared where one version changes another's tensors."""


class Apart:
    """Strategy: one by one, each with writable inputs of its own."""

    saves = False

    def __init__(self, runners: Sequence[Runner]) -> None:
        self._runners = runners

    def run(self, tensors: Tensors, /) -> list[Tensors]:
        own = [{name: tensor.clone() for name, tensor in tensors.items()} for _ in self._runners]
        return [runner.run(given) for runner, given in zip(self._runners, own, strict=True)]

    check = run


class Merged:
    """Strategy: one graph in which equal parts stand once."""

    def __init__(self, graph: MergedGraph, numbers: Sequence[int]) -> None:
        self._graph = graph
        self._numbers = tuple(numbers)
        self.saves = graph.operations(numbers) < sum(graph.operations([number]) for number in numbers)

    def run(self, tensors: Tensors, /) -> list[Tensors]:
        return self._graph.run(tensors, self._numbers)

    def check(self, tensors: Tensors, /) -> list[Tensors]:
        return self._graph.run_checked(tensors, self._numbers)


class Remembered:
    """Strategy: one by one, with repeated calls remembered."""

    saves = False

    def __init__(self, runners: Sequence[Runner], sharing: Sharing, forwards: Sequence[LeafForward]) -> None:
        self._runners = runners
        self._shared = sharing.shared_tensors()
        self._forwards = forwards

    def run(self, tensors: Tensors, /) -> list[Tensors]:
        return self._run(tensors, Kept([*tensors.values(), *self._shared]))

    def check(self, tensors: Tensors, /) -> list[Tensors]:
        kept = Kept([*tensors.values(), *self._shared])
        with WriteGuard(kept):
            return self._run(tensors, kept)

    def _run(self, tensors: Tensors, kept: Kept) -> list[Tensors]:
        with Memo(self._forwards, kept) as memo:
            answers = [runner.run(tensors) for runner in self._runners]
        self.saves = memo.saved > 0
        return answers


class Ways:
    """Pick the execution strategy for a set of versions on one trunk."""

    def __init__(self, runners: Sequence[Runner], sharing: Sharing) -> None:
        self._runners = runners
        self._sharing = sharing
        self._graph: MergedGraph | NotTraceable | None = None
        self._forwards: list[LeafForward] | None = None

    def apart(self, numbers: Sequence[int]) -> Way:
        return Apart([self._runners[number] for number in numbers])

    def best(self, tensors: Tensors, numbers: Sequence[int], expected: Sequence[Tensors]) -> Way:
        """Fastest strategy with bit-equal answers on these inputs."""
        for make in (self._merged, self._remembered):
            try:
                way = make(tensors, numbers)
                answers = way.check(tensors)
            except (NotTraceable, WritesIntoShared) as error:
                log.info("not %s: %s", make.__name__.strip("_"), error)
                continue
            except Exception as error:
                if fault_of(error) is not Fault.MODEL:
                    raise
                # Each of them has just answered alone: it is the way that fails, not a model.
                log.warning("not %s: %s: %s", make.__name__.strip("_"), type(error).__name__, error)
                continue
            if all(map(_is_equal, answers, expected)):
                return way
            log.warning("versions that share a trunk answer otherwise when %s", make.__name__.strip("_"))
        return self.apart(numbers)

    def _merged(self, tensors: Tensors, numbers: Sequence[int]) -> Way:
        if self._graph is None:
            try:
                self._graph = MergedGraph(self._runners, self._sharing, list(tensors))
            except NotTraceable as error:
                self._graph = error
        if isinstance(self._graph, NotTraceable):
            raise self._graph
        return Merged(self._graph, numbers)

    def _remembered(self, tensors: Tensors, numbers: Sequence[int]) -> Way:  # noqa: ARG002 - as its twin
        if self._forwards is None:
            self._forwards = leaf_forwards(self._sharing)
        return Remembered([self._runners[number] for number in numbers], self._sharing, self._forwards)


def _is_equal(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(
        tensor.shape == other[name].shape
        and tensor.dtype == other[name].dtype
        and is_same(tensor, other[name])
        for name, tensor in one.items()
    )
