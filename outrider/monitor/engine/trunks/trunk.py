"""Trunk: versions share one base, in memory and run once."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeGuard

import torch

from outrider.assertions import Batch, Predictor
from outrider.dataops.model_kinds.runner import EncodedRows, Outputs, Runner, Tensors
from outrider.monitor.engine.asks import Name
from outrider.monitor.engine.executor import LoadedVersion, Segment

from .sharing import Sharing
from .strategies import Way, Ways


class Trunk:
    """Versions that share weights, each answering all rows asked.

    The first batch of every selection is answered one by one and then together: a joint strategy is kept
    only if its outputs are bit-equal and it writes into nothing others read. A merged graph is tried
    first, then shared calls; else memory alone is shared. ``head_forwards`` equals ``trunk_forwards``
    where nothing is saved.
    """

    is_mixed = False

    def __init__(self, members: Mapping[Name, Runner]) -> None:
        self.names = tuple(members)
        self._runners = list(members.values())
        self.device = self._runners[0].device
        sharing = Sharing([runner.module for runner in self._runners])
        self.separate_bytes = sharing.separate_bytes
        self.held_bytes = sharing.held_bytes
        self.trunk_forwards = 0
        self.head_forwards = 0
        self._ways = Ways(self._runners, sharing)
        self._found: dict[tuple[int, ...], Way] = {}

    def encode(self, name: Name, batch: Batch, /) -> EncodedRows:
        return self._runners[self.names.index(name)].encode(batch)

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:
        parts: list[list[Tensors]] = [[] for _ in segments]
        edges = sorted({edge for segment in segments for edge in (segment.start, segment.stop)})
        for start, stop in pairwise(edges):
            wanted = [at for at, segment in enumerate(segments) if segment.start <= start < segment.stop]
            rows = {name: tensor[start:stop] for name, tensor in tensors.items()}
            numbers = [self.names.index(segments[at].name) for at in wanted]
            if wanted:
                for at, answers in zip(wanted, self._run(rows, numbers), strict=True):
                    parts[at].append(answers)
        return [_joined(answers) for answers in parts]

    def replayed(self, names: Sequence[Name], /) -> None:
        way = self._found.get(tuple(self.names.index(name) for name in names))
        self._count(1 if len(names) == 1 or (way is not None and way.saves) else len(names), len(names))

    def decode(self, name: Name, answers: Tensors, /) -> Outputs:
        return self._runners[self.names.index(name)].decode(answers)

    def forwards(self, versions: int, /) -> int:
        return 1 if self._found and all(way.saves for way in self._found.values()) else versions

    # ---- inside ----------------------------------------------------------------------------------------

    def _run(self, tensors: Tensors, numbers: Sequence[int]) -> list[Tensors]:
        wanted = tuple(numbers)
        if len(wanted) == 1:
            self._count(1, 1)
            return [self._runners[wanted[0]].run(tensors)]
        way = self._found.get(wanted)
        if way is None:
            way = self._ways.apart(wanted)
            answers = way.run(tensors)
            self._found[wanted] = self._ways.best(tensors, wanted, answers)
        else:
            answers = way.run(tensors)
        self._count(1 if way.saves else len(wanted), len(wanted))
        return answers

    def _count(self, trunks: int, heads: int) -> None:
        self.trunk_forwards += trunks
        self.head_forwards += heads


def trunks_of(loaded: Mapping[Name, LoadedVersion]) -> list[tuple[Name, ...]]:
    """Loaded versions by shared trunk and equal encoding; equal weights are held once."""
    runners = {
        name: one.model
        for name, one in loaded.items()
        if one.source.adapter is None and _is_runner(one.model)
    }
    found: list[tuple[Name, ...]] = []
    for device in dict.fromkeys(runner.device for runner in runners.values()):
        here = {name: runner for name, runner in runners.items() if runner.device == device}
        names = list(here)
        for numbers in Sharing([runner.module for runner in here.values()]).groups():
            alike: dict[str, list[Name]] = {}
            for name in (names[number] for number in numbers):
                if (encoding := getattr(here[name], "encoding", None)) is not None:
                    alike.setdefault(encoding, []).append(name)
            found += [tuple(members) for members in alike.values() if len(members) > 1]
    return found


def _joined(parts: Sequence[Tensors]) -> Tensors:
    if len(parts) == 1:
        return parts[0]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _is_runner(model: Runner | Predictor) -> TypeGuard[Runner]:
    return isinstance(getattr(model, "module", None), torch.nn.Module) and hasattr(model, "run")
