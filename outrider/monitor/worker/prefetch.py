"""Prefetched answers to records ahead of their slots' cursors, asked with the champion's."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.monitor.stream.units import Unit

from .inference import InferenceRequest, Predictions

MAX_BYTES = 67_108_864
"""Limit over all models; beyond, slots ask for themselves."""
MAX_REQUESTS = 256
"""Limit over all models; beyond, slots ask for themselves."""


@dataclass(frozen=True, slots=True)
class Prefetched:
    after: int
    last_seq: int
    places: NDArray[np.int64]
    request: InferenceRequest

    def predictions(self, version: str, unit: Unit, kept: NDArray[np.intp]) -> Predictions | None:
        """Answers of a version to rows ``kept`` of a unit; None where the version was not asked about all."""
        wanted = places_of(unit, kept)
        at = np.searchsorted(self.places, wanted)
        inside = at < len(self.places)
        if not (inside.all() and np.array_equal(self.places[at], wanted)):
            return None
        return Predictions.of(self.request, version).take(at)


def places_of(unit: Unit, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Position of records as one number each, rising along the stream."""
    return (unit.seq[rows] << 32) | unit.row[rows]


class PrefetchedAnswers:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._of: dict[tuple[str, str], list[Prefetched]] = {}

    @property
    def has_room(self) -> bool:
        requests = {id(one.request): one.request for kept in self._of.values() for one in kept}.values()
        return len(requests) < MAX_REQUESTS and sum(one.nbytes for one in requests) < self._max_bytes

    def keep(self, model: str, versions: Iterable[str], prefetched: Prefetched) -> None:
        for version in versions:
            self._of.setdefault((model, version), []).append(prefetched)

    def at(self, model: str, version: str, cursor: int) -> Prefetched | None:
        """Request of a version at a cursor; older ones are dropped."""
        kept = self._of.get((model, version), [])
        while kept and kept[0].last_seq <= cursor:
            kept.pop(0)
        return kept[0] if kept and kept[0].after <= cursor else None

    def next_begins(self, model: str, version: str, cursor: int) -> int | None:
        """Block after which the next request of a version lies, or None."""
        return next((one.after for one in self._of.get((model, version), []) if one.after > cursor), None)

    def forget(self, model: str, version: str) -> None:
        self._of.pop((model, version), None)

    def drop(self, request: InferenceRequest) -> None:
        for kept in self._of.values():
            kept[:] = [one for one in kept if one.request is not request]
