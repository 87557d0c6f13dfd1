"""Prefetched answers to records ahead of their slots' cursors.

Asked with the champion's.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.monitor.stream.units import Unit

from .inference import InferenceRequest, Predictions

MAX_BYTES = 67_108_864
"""Answers that wait for their slots, of all models; beyond, slots ask for themselves."""
MAX_REQUESTS = 256
"""And requests: the answers of some may not have come yet."""


@dataclass(frozen=True, slots=True)
class Prefetched:
    """A request about the records of a unit."""

    after: int
    last_seq: int
    """``after`` and ``last_seq``: journal blocks behind which and up to which the unit lies."""
    places: NDArray[np.int64]
    """Where its records lie, in order: see :func:`places_of`."""
    request: InferenceRequest

    def predictions(self, version: str, unit: Unit, kept: NDArray[np.intp]) -> Predictions | None:
        """Answers of a version to the rows ``kept`` of a unit.

        None where the version was not asked about all.
        """
        wanted = places_of(unit, kept)
        at = np.searchsorted(self.places, wanted)
        inside = at < len(self.places)
        if not (inside.all() and np.array_equal(self.places[at], wanted)):
            return None
        return Predictions.of(self.request, version).take(at)


def places_of(unit: Unit, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Position of records as one number each, rising along the stream. From journal block and row."""
    return (unit.seq[rows] << 32) | unit.row[rows]


class PrefetchedAnswers:
    """Requests ahead of each version, in the order of the stream."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._of: dict[tuple[str, str], list[Prefetched]] = {}

    @property
    def has_room(self) -> bool:
        """True while more may be asked ahead."""
        requests = {id(one.request): one.request for kept in self._of.values() for one in kept}.values()
        return len(requests) < MAX_REQUESTS and sum(one.nbytes for one in requests) < self._max_bytes

    def keep(self, model: str, versions: Iterable[str], prefetched: Prefetched) -> None:
        """Keep an ask of these versions of a model."""
        for version in versions:
            self._of.setdefault((model, version), []).append(prefetched)

    def at(self, model: str, version: str, cursor: int) -> Prefetched | None:
        """Ask of a version at a cursor; older ones are forgotten."""
        kept = self._of.get((model, version), [])
        while kept and kept[0].last_seq <= cursor:
            kept.pop(0)
        return kept[0] if kept and kept[0].after <= cursor else None

    def next_begins(self, model: str, version: str, cursor: int) -> int | None:
        """Block behind which the next ask of a version lies. None where there is none."""
        return next((one.after for one in self._of.get((model, version), []) if one.after > cursor), None)

    def forget(self, model: str, version: str) -> None:
        """Drop prefetched answers of a version. The version has gone, or asks for itself."""
        self._of.pop((model, version), None)

    def drop(self, request: InferenceRequest) -> None:
        """Drop a cancelled request."""
        for kept in self._of.values():
            kept[:] = [one for one in kept if one.request is not request]
