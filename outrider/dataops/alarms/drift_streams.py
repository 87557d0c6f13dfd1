"""Watched shares of columns by window, read from stored profiles."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.assertions.drift.share_watch import ShareStreams
from outrider.assertions.drift.shares import ColumnShare, ShareCounter, column_shares
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.ledger.stored_profiles import ProfileRange, WindowWeights, read_weights

from .minute_counts import ALL

Floats = NDArray[np.float64]
MOST_SLICES = 16
"""Slices that are watched, those with the most records in the reference."""


@dataclass(frozen=True, slots=True)
class DriftStreams:
    """Shares of all records, then of each slice, in one order.

    ``slices`` begins with ``ALL``; ``dataset`` is the version that inputs of all records are compared
    with, or empty.
    """

    shares: tuple[ColumnShare, ...]
    slices: tuple[str, ...]
    dataset: str = ""
    _counters: dict[str, ShareCounter] = field(default_factory=dict, compare=False)

    @property
    def size(self) -> int:
        return len(self.shares) * len(self.slices)

    def share(self, stream: int) -> ColumnShare:
        return self.shares[stream % len(self.shares)]

    def slice(self, stream: int) -> str:
        return self.slices[stream // len(self.shares)]

    def of(self, columns: Iterable[str]) -> list[int]:
        wanted = set(columns)
        return [at for at in range(self.size) if self.share(at).column in wanted]

    def watched(self) -> ShareStreams:
        return ShareStreams.of(self.shares, slices=len(self.slices) - 1)

    def count(
        self, found: Iterable[WindowWeights], begin_us: int, width_us: int, windows: int
    ) -> "StreamCounts":
        hits, seen = np.zeros((2, len(self.slices), len(self.shares), windows))
        versions: dict[str, int] = {}
        bins: dict[str, Floats] = {}
        places = {name: at for at, name in enumerate(self.slices)}
        for one in found:
            at = (one.start_us - begin_us) // width_us
            if one.layout.digest not in self._counters:
                self._counters[one.layout.digest] = ShareCounter.of(self.shares, one.layout)
            won, own = self._counters[one.layout.digest].count(one.weights)
            for part in {0, places.get(one.slice, 0)}:
                hits[part, :, at] += won
                seen[part, :, at] += own
            versions[one.version] = versions.get(one.version, 0) + one.rows
            if at == windows - 1:
                _add_bins(bins, one)
        shape = self.size, windows
        return StreamCounts(hits.reshape(shape), seen.reshape(shape), versions, bins)

    def count_inputs(self, profile: Profile) -> tuple[Floats, Floats]:
        """Counts of a dataset's profile by stream, 0.0 except for inputs."""
        found = np.zeros((2, len(self.slices), len(self.shares)))
        is_told = [share.column.startswith("inputs.") and share.change != "gone" for share in self.shares]
        counts = ShareCounter.of(self.shares, profile.layout).count(profile.weights)
        found[:, 0, is_told] = np.stack(counts)[:, is_told]
        return found[0].ravel(), found[1].ravel()

    def to_json(self) -> dict[str, Any]:
        shares = [[one.column, one.change, one.cut, list(one.names)] for one in self.shares]
        return {"shares": shares, "slices": list(self.slices), "dataset": self.dataset}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "DriftStreams":
        shares = [
            ColumnShare(column, change, cut, tuple(names)) for column, change, cut, names in told["shares"]
        ]
        return cls(tuple(shares), tuple(told["slices"]), told["dataset"])


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """Counts of streams by window, shape (streams, windows); ``bins`` are weights in the newest window."""

    hits: Floats
    seen: Floats
    versions: Mapping[str, int]
    bins: Mapping[str, Floats]

    @property
    def heard(self) -> int:
        return int(np.count_nonzero(self.seen.any(axis=0))) if len(self.seen) else 0

    def is_constant(self, column: str) -> bool:
        bins = self.bins.get(column)
        return bins is not None and np.count_nonzero(bins) == 1


def _add_bins(bins: dict[str, Floats], one: WindowWeights) -> None:
    for at, column in enumerate(one.layout.columns):
        begin = int(one.layout.offsets[at])
        own = one.weights[begin : begin + column.bins + 1]
        known = bins.get(column.name)
        bins[column.name] = own if known is None or len(known) != len(own) else known + own


def read_streams(
    connection: Connection, model: str, span: ProfileRange, *, width_us: int
) -> DriftStreams | None:
    sums: dict[str, tuple[ProfileLayout, Floats]] = {}
    rows: dict[str, int] = {}
    for one in read_weights(connection, model, span, width_s=width_us // 1_000_000):
        known = sums.get(one.layout.digest)
        sums[one.layout.digest] = one.layout, one.weights if known is None else known[1] + one.weights
        rows[one.slice] = rows.get(one.slice, 0) + one.rows
    if not sums:
        return None
    layout, weights = _together(list(sums.values()))
    own = [name for name in sorted(rows, key=lambda name: (-rows[name], name)) if name not in ("", OTHERS)]
    slices = own[:MOST_SLICES] if len(rows) > 1 else []
    return DriftStreams(tuple(column_shares(layout, weights)), (ALL, *slices))


def _together(sums: Sequence[tuple[ProfileLayout, Floats]]) -> tuple[ProfileLayout, Floats]:
    """Newest layout, with all weights of its columns."""
    newest = sums[-1][0]
    weights = np.zeros(int(newest.offsets[-1]))
    for layout, own in sums:
        places = {column: at for at, column in enumerate(layout.columns)}
        for at, column in enumerate(newest.columns):
            if (here := places.get(column)) is not None:
                begin, end = layout.offsets[here : here + 2]
                weights[newest.offsets[at] : newest.offsets[at + 1]] += own[begin:end]
    return newest, weights
