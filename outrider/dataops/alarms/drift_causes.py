"""Changes of columns that explain alarms of drift: size, onset and rank."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.detection import onset_interval
from outrider.assertions.detection.rises import largest_ratio
from outrider.assertions.drift.share_watch import ShareWatch
from outrider.assertions.drift.shares import ColumnShare
from outrider.assertions.statistics.wilson import wilson_interval

from .drift_streams import DriftStreams, StreamCounts

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_ALL_OF = 0.99
"""Share of nulls from which a column counts as silent."""


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    share: float
    seen: float

    @property
    def interval(self) -> tuple[float, float]:
        if self.seen <= 0:
            return 0.0, 1.0
        low, high = wilson_interval(self.share * self.seen, self.seen)
        return float(low), float(high)


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """Change of a column's share, of all records or a slice.

    ``weight`` is the log likelihood ratio, >= 0; ``first``, ``onset`` and ``last`` are windows of the
    history from 0.
    """

    stream: int
    share: ColumnShare
    slice: str
    before: ShareEstimate
    now: ShareEstimate
    weight: float
    first: int
    onset: int
    last: int
    is_constant: bool = False

    @property
    def is_large(self) -> bool:
        """True for a difference that counts; of unseen and gone values only an increase."""
        difference = self.now.share - self.before.share
        return (
            difference if self.share.change in ("unseen", "gone") else abs(difference)
        ) >= self.share.least

    @property
    def is_silent(self) -> bool:
        is_null = self.share.change == "missing" and self.now.share >= _ALL_OF
        return self.share.change == "gone" or is_null or self.is_constant

    @property
    def words(self) -> str:
        if self.is_constant:
            return "values of one bin alone"
        return self.share.words(self.before.share, self.now.share)


@dataclass(frozen=True, slots=True)
class DriftHistory:
    streams: DriftStreams
    watch: ShareWatch
    counts: StreamCounts

    def changes(self, alarms: Bools) -> list[ColumnChange]:
        """Largest change of each alarming column, the most certain first."""
        hits, seen = self.watch.dispersion.effective(self.counts.hits, self.counts.seen)
        risen = self.watch.has_risen()
        best: dict[str, ColumnChange] = {}
        for stream in np.flatnonzero(alarms).tolist():
            won = hits[stream] if risen[stream] else seen[stream] - hits[stream]
            change = self._change(hits, seen, stream, *self._onset(stream, won, seen[stream]))
            known = best.get(change.share.column)
            if change.is_large and (known is None or change.weight > known.weight):
                best[change.share.column] = change
        return sorted(best.values(), key=lambda one: -one.weight)

    def _onset(self, stream: int, won: Floats, seen: Floats) -> tuple[int, int, int]:
        if not self.streams.dataset:
            found = onset_interval(won, seen)
            return found.first, found.block, found.last
        # the reference is of no window: it comes before them all
        hits, known = self.watch.reference[:, stream]
        before = hits if self.watch.has_risen()[stream] else known - hits
        found = onset_interval(np.append(before, won), np.append(known, seen))
        return found.first - 1, found.block - 1, found.last - 1

    def causes(self, changes: Sequence[ColumnChange], *, alpha: float) -> list[ColumnChange]:
        hits, seen = self.watch.dispersion.effective(self.counts.hits, self.counts.seen)
        first = changes[0]
        streams = self.streams.of(one.share.column for one in changes)
        least = -math.log(alpha) + math.log(len(streams))
        best = {(one.share.column, one.slice): one for one in changes}
        for stream in streams:
            found = self._change(hits, seen, stream, first.first, first.onset, first.last)
            key = found.share.column, found.slice
            known = best.get(key)
            if found.is_large and found.weight >= max(least, 0.0 if known is None else known.weight):
                best[key] = found
        return sorted(best.values(), key=lambda one: -one.weight)

    def _change(
        self, hits: Floats, seen: Floats, stream: int, first: int, onset: int, last: int
    ) -> ColumnChange:
        known, own = self.watch.reference[:, stream]
        won, since = float(hits[stream, onset:].sum()), float(seen[stream, onset:].sum())
        before, now = ShareEstimate(_share(known, own), own), ShareEstimate(_share(won, since), since)
        sides = (
            (known, own, won, since) if now.share >= before.share else (own - known, own, since - won, since)
        )
        weight = float(largest_ratio(*(np.array(side) for side in sides))) if own > 0 and since > 0 else 0.0
        share = self.streams.share(stream)
        found = ColumnChange(
            stream, share, self.streams.slice(stream), before, now, weight, first, onset, last
        )  # fmt: skip
        return replace(found, is_constant=share.is_of_shape and self.counts.is_constant(share.column))


def of_one_onset(changes: Sequence[ColumnChange]) -> list[list[ColumnChange]]:
    """Changes grouped by onsets that may be the same; silent columns apart."""
    groups: list[list[ColumnChange]] = []
    for one in changes:
        for group in groups:
            head = group[0]
            if head.is_silent == one.is_silent and head.first <= one.last and one.first <= head.last:
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


def _share(hits: float, seen: float) -> float:
    return min(1.0, hits / seen) if seen > 0 else 0.0
