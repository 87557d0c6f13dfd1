"""Executor's queue: asks to encode, rows by length, suspects to try alone."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.assertions import Batch

from .asks import Name, Priority
from .batching import AskPiece, Key, LengthBucket, Rank
from .collect import Collect, RepeatedRecords
from .faults import Fault, fault_of
from .feeds import Fed, Feed, Found
from .pace import PassCost, measure
from .poison import detail_of

OnWork = Callable[[Sequence[Name]], None]
"""Called with the versions whose work begins, so that a hang can be attributed."""
AHEAD_ROWS = 8192
"""Encoded records of different lengths that wait, so that similar ones meet."""
JOINED_ROWS = 1024
BATCH_ROWS = 1024
WELL_PASSES = 256
"""Passes at a memory limit before twice as much is tried again: the memory may have been borrowed."""


@dataclass(slots=True)
class EncodedAsk:
    batch: Batch
    collects: tuple[Collect, ...]
    rank: Rank
    again: tuple[int, ...] = ()


@dataclass(slots=True)
class LaneCounts:
    rows: int = 0
    head_rows: int = 0
    trunk_forwards: int = 0
    head_forwards: int = 0
    """``trunk_forwards`` and ``head_forwards``: passes, and passes that the versions would have taken each
    for itself."""
    raised: int = 0
    poison: int = 0
    out_of_memory: int = 0
    """``raised``, ``poison`` and ``out_of_memory``: passes that raised, records that raise alone, passes that
    did not fit into memory."""
    again_rows: int = 0
    measured: int = 0


@dataclass(slots=True)
class _Limit:
    rows: int
    well: int = 0

    def passed(self, rows: int) -> None:
        self.well += rows >= self.rows
        if self.well >= WELL_PASSES:
            self.rows, self.well = self.rows * 2, 0


@dataclass(slots=True, eq=False)
class Lane:
    feed: Feed
    batch_rows: int | None = None
    """Rows of a pass; None to measure."""
    on_work: OnWork = lambda _names: None
    counts: LaneCounts = field(default_factory=LaneCounts)
    paces: dict[Key, PassCost | None] = field(default_factory=dict)
    _asked: tuple[deque[EncodedAsk], ...] = field(default_factory=lambda: tuple(deque() for _ in Priority))
    _buckets: dict[Key, LengthBucket] = field(default_factory=dict)
    _alone: tuple[deque[list[AskPiece]], ...] = field(
        default_factory=lambda: tuple(deque() for _ in Priority)
    )
    _limits: dict[Key, _Limit] = field(default_factory=dict)

    # ---- asks ------------------------------------------------------------------------------------------

    def put(self, request: EncodedAsk) -> None:
        self._asked[request.rank[0]].append(request)

    @property
    def rank(self) -> Rank | None:
        asked = self._next_asked()
        ranks = [self._alone_rank(), self._bucket_rank(), asked.rank if asked else None]
        return min((rank for rank in ranks if rank is not None), default=None)

    def encode_ahead(self) -> list[Collect]:
        """Encode records ahead of passes; returns ended collections.

        Rows of one length are encoded for the next pass only, while they are in the processor's
        caches.
        """
        ended: list[Collect] = []
        while (request := self._next_asked()) is not None:
            if self._is_enough() and (first := self._bucket_rank()) and first[0] <= request.rank[0]:
                break
            requests = self._alike(self._asked[request.rank[0]])
            name = request.collects[0].name
            self.on_work([name])
            for one, fed in zip(requests, self.feed.encode([r.batch for r in requests], name), strict=True):
                self._take_in(one, fed)
                ended += [collect for collect in one.collects if collect.is_over]
        return ended

    def _alike(self, queue: deque[EncodedAsk]) -> list[EncodedAsk]:
        first = queue.popleft()
        taken, rows = [first], first.batch.rows
        if self.feed.is_mixed:  # versions of one ask share what is encoded
            return taken
        names, schema = [c.name for c in first.collects], first.batch.to_arrow().schema
        while queue and (rows := rows + queue[0].batch.rows) <= JOINED_ROWS:
            batch = queue[0].batch
            if [c.name for c in queue[0].collects] != names or not batch.to_arrow().schema.equals(schema):
                break
            taken.append(queue.popleft())
        return taken

    def _take_in(self, request: EncodedAsk, fed: Fed) -> None:
        part = None
        if request.again and fed.encoded is not None:
            part = RepeatedRecords.of(fed.encoded, fed.poison, np.array(request.again, dtype=np.intp))
        for collect in request.collects:
            if fed.encoded is None:
                collect.give_up(fed.failure)
            else:
                collect.begin(fed.encoded, fed.poison, part)
        if fed.encoded is not None:
            for key, start, stop in fed.ranges:
                piece = AskPiece(fed.encoded, request.collects, start, stop, request.rank, key)
                self._buckets.setdefault(key, LengthBucket()).put(piece)

    def _is_enough(self) -> bool:
        ahead = {key: AHEAD_ROWS if key[1] else self.best_rows(key) for key in self._buckets}
        waiting = sum(bucket.rows for bucket in self._buckets.values())
        return bool(ahead) and waiting >= max(ahead.values())

    def _next_asked(self) -> EncodedAsk | None:
        for queue in self._asked:
            while queue and all(collect.is_over for collect in queue[0].collects):
                queue.popleft()
            if queue:
                return queue[0]
        return None

    # ---- passes ----------------------------------------------------------------------------------------

    def choose(self) -> Key | None:
        """Bucket of the next pass, None for lone suspects or no rows: of the buckets with rows of
        the first ask, the widest that fills a pass, else the widest."""
        first, alone = self._bucket_rank(), self._alone_rank()
        if first is None or (alone is not None and alone <= first):
            return None
        with_first = [
            key for key, bucket in self._buckets.items() if (head := bucket.head) and head.rank == first
        ]
        return max(with_first, key=lambda key: (self._buckets[key].rows >= self.best_rows(key), key[1]))

    def needs_measure(self, key: Key) -> bool:
        return self.batch_rows is None and self.feed.is_measured() and _octave(key) not in self.paces

    def measure(self, key: Key, piece: AskPiece | None = None) -> None:
        piece = piece or self._buckets[key].head
        if piece is None:
            return
        sample = piece
        names = [collect.name for collect in piece.collects]

        def timed(rows: int) -> float:
            self.counts.measured += rows
            self.on_work(names)
            return self.feed.timed(sample, rows)

        try:
            pace = measure(timed, width=max(1, key[1]))
        except Exception as error:
            if fault_of(error) is Fault.DEVICE:
                raise
            pace = None  # a model may raise anything; its pass tells which record it is
        self.paces[_octave(key)] = pace

    def best_rows(self, key: Key) -> int:
        pace = self.paces.get(_octave(key))
        rows = pace.best if pace is not None else self.batch_rows or BATCH_ROWS
        limit = self._limits.get(_octave(key))
        return rows if limit is None else min(rows, limit.rows)

    def take(self, key: Key | None) -> list[AskPiece]:
        if key is None:
            return self._take_alone()
        size = self.best_rows(key)
        pieces = self._buckets[key].take(size)
        self._top_up(pieces, key, size)
        for empty in [key for key, bucket in self._buckets.items() if bucket.head is None]:
            del self._buckets[empty]
        return pieces

    def _top_up(self, pieces: list[AskPiece], key: Key, size: int) -> None:
        """Add shorter rows where widening costs less than a pass of their own."""
        form, width = key
        pace = self.paces.get(_octave(key))
        shorter = sorted((k for k in self._buckets if k[0] == form and k[1] < width), reverse=True)
        for other in shorter:
            rows = sum(piece.rows for piece in pieces)
            own = self.paces.get(_octave(other))
            if pace is None or own is None or rows >= size:
                return
            more = min(size - rows, self._buckets[other].rows)
            added = pace.seconds_of(rows + more, width) - pace.seconds_of(rows, width)
            if added <= own.seconds_of(own.best, other[1]) / own.best * more:
                pieces += self._buckets[other].take(more)

    # ---- what came of them -----------------------------------------------------------------------------

    def landed(
        self, found: Sequence[Found], pieces: Sequence[AskPiece], seconds: float = 0.0
    ) -> list[Collect]:
        rows = sum(piece.rows * piece.repeats for piece in pieces)
        limit = self._limits.get(_octave(pieces[0].key))
        if limit is not None:
            limit.passed(rows)
        self.counts.rows += rows
        versions = len({collect.name for piece in pieces for collect in piece.collects})
        self.counts.trunk_forwards += self.feed.forwards(versions)
        self.counts.head_forwards += versions
        for piece, collect, raw in found:
            self.counts.head_rows += piece.rows * piece.repeats
            collect.seconds += seconds * piece.rows * piece.repeats / rows
            if collect.is_over:
                continue
            if isinstance(raw, str):
                collect.give_up(raw)
            else:
                collect.put(piece.start, piece.stop, raw)
        self._ask_again([again for piece in pieces if (again := _again_of(piece)) is not None], rows)
        return [collect for _, collect, _ in found if collect.is_over]

    def _ask_again(self, pieces: Sequence[AskPiece], rows: int) -> None:
        """Ask second answers in batches of another shape than ``rows``."""
        again = sum(piece.rows for piece in pieces)
        self.counts.again_rows += again
        if 0 < again < rows:
            self._put_alone(list(pieces))
            return
        for piece in pieces:
            if piece.rows < rows:
                self._put_alone([piece])
            elif rows > 1:
                for half in piece.cut(rows // 2):
                    self._put_alone([half])
            else:
                piece.repeats = 2
                self._put_alone([piece])

    def raised(self, pieces: Sequence[AskPiece], error: BaseException) -> list[Collect]:
        """Narrow an error down by halves of pieces, versions and records; returns ended collections."""
        self.counts.raised += 1
        pieces = [piece for piece in pieces if not piece.is_over]
        if not pieces:
            return []
        piece, half = pieces[0], len(pieces) // 2
        if half:
            parts = [list(pieces[:half]), list(pieces[half:])]
        elif len(piece.collects) > 1:
            parts = [[piece.of(collect)] for collect in piece.collects]
        elif piece.rows > 1:
            parts = [[part] for part in piece.cut(piece.rows // 2)]
        else:
            return self._poisoned(piece, piece.collects[0], error)
        for part in reversed(parts):
            self._put_alone(part)
        return []

    def _poisoned(self, piece: AskPiece, collect: Collect, error: BaseException) -> list[Collect]:
        """Note a record that raises alone, and try one as far from it as possible: it may be the model."""
        self.counts.poison += 1
        collect.raised(piece.start, detail_of(error))
        self._alone[piece.rank[0]].rotate(-1)
        return [collect] if collect.is_over else []

    def out_of_memory(self, pieces: Sequence[AskPiece], error: BaseException) -> list[Collect]:
        """Halve the rows of later passes; poison a record too large by itself."""
        self.counts.out_of_memory += 1
        rows = sum(piece.rows * piece.repeats for piece in pieces)
        if rows == 1:
            return self.raised(pieces, error)
        key = max((piece.key for piece in pieces), key=lambda key: key[1])
        self._limits[_octave(key)] = _Limit(rows // 2)
        for piece in reversed(pieces):
            piece.repeats = 1
            self._buckets.setdefault(piece.key, LengthBucket()).put_back(piece)
        return []

    # ---- what is tried alone ---------------------------------------------------------------------------

    def _put_alone(self, pieces: list[AskPiece]) -> None:
        self._alone[min(piece.rank for piece in pieces)[0]].append(pieces)

    def _alone_rank(self) -> Rank | None:
        for queue in self._alone:
            while queue and all(piece.is_over for piece in queue[-1]):
                queue.pop()
            if queue:
                return min(piece.rank for piece in queue[-1])
        return None

    def _take_alone(self) -> list[AskPiece]:
        rank = self._alone_rank()
        return [] if rank is None else [piece for piece in self._alone[rank[0]].pop() if not piece.is_over]

    # ---- buckets ---------------------------------------------------------------------------------------

    def _bucket_rank(self) -> Rank | None:
        heads = [bucket.head for bucket in self._buckets.values()]
        return min((head.rank for head in heads if head is not None), default=None)


def _again_of(piece: AskPiece) -> AskPiece | None:
    collects = tuple(c.again for c in piece.collects if c.again is not None and not c.again.is_over)
    part = piece.collects[0].part
    if not collects or part is None:
        return None
    start, stop = np.searchsorted(part.at, [piece.start, piece.stop]).tolist()
    return AskPiece(part.encoded, collects, start, stop, piece.rank, piece.key) if start < stop else None


def _octave(key: Key) -> Key:
    """Buckets of one doubling of the width share what was measured and what fits into memory."""
    return key[0], 1 << (key[1] - 1).bit_length() if key[1] else 0
