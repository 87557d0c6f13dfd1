"""Versions that were made from one base, run together: what they share lies in memory once and runs once."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import torch

from outrider.assertions import Batch, Predictor
from outrider.dataops.model_kinds.runner import Outputs, Rows, Runner, Tensors

from .asks import Name
from .executor import Loaded, Segment
from .sharing import Sharing
from .ways import Way, Ways


class Trunk:
    """Versions that share a part with weights; each answers every row that it is asked about.

    The first batch of every selection of versions is answered one by one and then together: only a way to
    answer together whose outputs are bit-equal, and that writes into nothing others read, is kept. First
    one merged graph is tried, then shared calls; where neither does, memory alone is shared.

    Parameters
    ----------
    members
        Runners of one device that encode alike.

    Attributes
    ----------
    separate_bytes, held_bytes
        What their weights would take one by one, and what they take.
    trunk_forwards
        Times that the shared part has run.
    head_forwards
        Times that a version has answered a batch; equal to ``trunk_forwards`` where nothing is saved.
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

    def encode(self, name: Name, batch: Batch, /) -> Rows:
        """Records as tensors on the CPU: the same for every version."""
        return self._runners[self.names.index(name)].encode(batch)

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:
        """Raw answers of each segment; versions that answer the same rows do so together."""
        together: dict[tuple[int, int], list[int]] = {}
        for at, segment in enumerate(segments):
            together.setdefault((segment.start, segment.stop), []).append(at)
        answers: dict[int, Tensors] = {}
        for (start, stop), places in together.items():
            part = {name: tensor[start:stop] for name, tensor in tensors.items()}
            numbers = [self.names.index(segments[at].name) for at in places]
            answers |= dict(zip(places, self._run(part, numbers), strict=True))
        return [answers[at] for at in range(len(segments))]

    def decode(self, name: Name, answers: Tensors, /) -> Outputs:
        """Outputs of a version by field."""
        return self._runners[self.names.index(name)].decode(answers)

    # ---- inside ----------------------------------------------------------------------------------------

    def _run(self, tensors: Tensors, numbers: Sequence[int]) -> list[Tensors]:
        """Answers of some versions to all rows."""
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


def trunks_of(loaded: Mapping[Name, Loaded]) -> list[Trunk]:
    """Those of the loaded versions that share a part with weights, by trunk.

    Equal weights are held once among all modules without an adapter, whether they run together or not.
    """
    runners = {
        name: one.model
        for name, one in loaded.items()
        if one.source.adapter is None and _is_runner(one.model)
    }
    found = []
    for device in {runner.device for runner in runners.values()}:
        here = {name: runner for name, runner in runners.items() if runner.device == device}
        sharing = Sharing([runner.module for runner in here.values()])
        names = list(here)
        for numbers in sharing.groups():
            found += _that_encode_alike({names[number]: here[names[number]] for number in numbers})
    return found


def _that_encode_alike(members: Mapping[Name, Runner]) -> list[Trunk]:
    by_encoding: dict[str, dict[Name, Runner]] = {}
    for name, runner in members.items():
        encoding = getattr(runner, "encoding", None)
        if encoding is not None:
            by_encoding.setdefault(encoding, {})[name] = runner
    return [Trunk(alike) for alike in by_encoding.values() if len(alike) > 1]


def _is_runner(model: Runner | Predictor) -> TypeGuard[Runner]:
    return isinstance(getattr(model, "module", None), torch.nn.Module) and hasattr(model, "run")
