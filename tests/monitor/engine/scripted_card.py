"""A machine in the place of a GPU: lanes run late and in any order that their marks allow."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from outrider.monitor.engine.cuda.card import Lane, Mark

T = TypeVar("T")
GARBAGE = 0x7F


@dataclass(eq=False)
class ScriptedMark:
    is_done: bool = False


@dataclass
class Piece:
    work: Callable[[], None]
    after: list[ScriptedMark]
    mark: ScriptedMark


class ScriptedCard:
    """Runs the pieces of its lanes only when one is waited for, in a random legal order.

    A replay overwrites what other captures have written, as a shared pool of memory may. Fresh memory is
    garbage, but for what captures read, since a capture does not run here but does on this machine.
    """

    def __init__(self, seed: int = 0) -> None:
        self.device = torch.device("cpu")
        self._random = np.random.default_rng(seed)
        self._lanes: dict[str, deque[Piece]] = {"in": deque(), "compute": deque(), "out": deque()}
        self._captured: list[list[dict[str, torch.Tensor]]] = []
        self.captures = 0
        self.refusal: Exception | None = None
        self.broken: Exception | None = None
        self.order: list[str] = []

    def memory(self, nbytes: int, /, *, pinned: bool) -> torch.Tensor:
        fresh = torch.full((nbytes,), GARBAGE, dtype=torch.uint8)
        return fresh if pinned else fresh.zero_()

    def launch(self, lane: Lane, work: Callable[[], None], /, *, after: Sequence[Mark] = ()) -> Mark:
        marks = [mark for mark in after if isinstance(mark, ScriptedMark)]
        piece = Piece(work, marks, ScriptedMark())
        self._lanes[lane].append(piece)
        return piece.mark

    def wait(self, mark: Mark, /) -> None:
        assert isinstance(mark, ScriptedMark)
        if self.broken is not None:
            raise self.broken
        while not mark.is_done:
            ready = [n for n, q in self._lanes.items() if q and all(m.is_done for m in q[0].after)]
            lane = ready[self._random.integers(len(ready))]
            piece = self._lanes[lane].popleft()
            piece.work()
            piece.mark.is_done = True
            self.order.append(lane)

    def seconds(self, mark: Mark, /) -> float:
        assert isinstance(mark, ScriptedMark)
        assert mark.is_done
        return 0.001

    def settle(self) -> None:
        for queue in list(self._lanes.values()):
            while queue:
                self.wait(queue[-1].mark)

    def capture(self, work: Callable[[], T], /) -> tuple[Callable[[], None], T]:
        self.captures += 1
        if self.refusal is not None:
            raise self.refusal
        results = work()
        assert isinstance(results, list)
        self._captured.append(results)

        @torch.inference_mode()
        def replay() -> None:
            for others in self._captured:
                for answers in others:
                    for tensor in answers.values():
                        tensor.fill_(GARBAGE)
            fresh = work()
            assert isinstance(fresh, list)
            for held, new in zip(results, fresh, strict=True):
                for name, tensor in held.items():
                    tensor.copy_(new[name])

        return replay, results
