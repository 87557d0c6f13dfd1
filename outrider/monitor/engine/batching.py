"""Queue of ask pieces by length; first come first by priority."""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .asks import Priority
from .collect import Collect, Encoded

EDGES = np.array(
    [*range(8, 128, 8), *(step * at for step in (8 << k for k in range(14)) for at in range(16, 32))]
)
"""Widths that buckets reach to: every 8 up to 256, then sixteen to each doubling: little is padded."""
Rank = tuple[int, int]
"""(priority, arrival): the lowest goes first."""


def widths_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Width of the bucket of each row.

    Examples
    --------
    >>> widths_of(np.array([1, 8, 9, 130, 260])).tolist()
    [8, 8, 16, 136, 272]
    """
    return EDGES[np.searchsorted(EDGES, lengths)]


Key = tuple[Hashable, int]
"""(what rows must have in common to stand in one batch, width of the bucket; 0 where rows have no length)."""


@dataclass(slots=True, eq=False)
class AskPiece:
    encoded: Encoded
    collects: tuple[Collect, ...]
    start: int
    stop: int
    rank: Rank
    key: Key
    repeats: int = 1
    """Repetitions of its rows in the batch; the first is read, the others only change the batch's shape."""

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def is_over(self) -> bool:
        return all(collect.is_over for collect in self.collects)

    def cut(self, rows: int) -> tuple["AskPiece", "AskPiece"]:
        at = self.start + rows
        return self.part(self.start, at), self.part(at, self.stop)

    def part(self, start: int, stop: int) -> "AskPiece":
        return AskPiece(self.encoded, self.collects, start, stop, self.rank, self.key)

    def of(self, collect: Collect) -> "AskPiece":
        return AskPiece(self.encoded, (collect,), self.start, self.stop, self.rank, self.key)


class LengthBucket:
    def __init__(self) -> None:
        self._queues: tuple[deque[AskPiece], ...] = tuple(deque() for _ in Priority)
        self.rows = 0

    def put(self, piece: AskPiece) -> None:
        self.rows += piece.rows
        self._queues[piece.rank[0]].append(piece)

    def put_back(self, piece: AskPiece) -> None:
        self.rows += piece.rows
        self._queues[piece.rank[0]].appendleft(piece)

    @property
    def head(self) -> AskPiece | None:
        """First live piece; dead ones are dropped."""
        for queue in self._queues:
            while queue and queue[0].is_over:
                self.rows -= queue.popleft().rows
            if queue:
                return queue[0]
        return None

    def take(self, rows: int) -> list[AskPiece]:
        """Take pieces of at most ``rows`` records, the last one cut."""
        taken: list[AskPiece] = []
        while rows > 0 and (piece := self.head) is not None:
            queue = self._queues[piece.rank[0]]
            queue.popleft()
            if piece.rows > rows:
                piece, rest = piece.cut(rows)
                queue.appendleft(rest)
            self.rows -= piece.rows
            rows -= piece.rows
            taken.append(piece)
        return taken
