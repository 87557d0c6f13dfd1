from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.dataops.ledger.commit import Effects
from outrider.monitor.stream.units import Unit

from .champion import Prepared
from .inference import InferenceRequest
from .prefetch import Prefetched
from .stages.work import Timings, Work


@dataclass(slots=True)
class ChampionUnit:
    after: int
    unit: Unit
    began: float
    """Time at which the slot turned to it, by the objectives' timer."""
    prepared: Prepared | None = None
    version: str | None = None
    request: InferenceRequest | None = None
    is_ahead: bool = False
    """Whether it was asked about before its turn, with shedding undecided."""
    work: Work[Effects] | None = None
    """Generator that judges it once answers are there; ``questions`` is what it waits for."""
    questions: list[InferenceRequest] = field(default_factory=list)
    timings: Timings = field(default_factory=Timings)
    seen: int = 0
    """Last journal block when no next unit was found."""

    @property
    def is_answered(self) -> bool:
        version = self.version or ""
        asked = self.questions if self.request is None else [self.request, *self.questions]
        return all(request.has(version) for request in asked)

    def resume(self) -> Effects | Sequence[Batch]:
        """Effects of the unit, or further records to ask the version about first."""
        assert self.work is not None
        version = self.version or ""
        try:
            if not self.questions:
                return next(self.work)
            return self.work.send([request.answers[version] for request in self.questions])
        except StopIteration as done:
            effects: Effects = done.value
            return effects


@dataclass(slots=True)
class ChallengerUnit:
    after: int
    unit: Unit
    began: float
    kept: NDArray[np.intp]
    known: int
    """Registered records; some payloads may be gone."""
    batch: Batch
    timings: Timings
    request: InferenceRequest | None = None
    prefetched: Prefetched | None = None
    due: float = 0.0
    pause_s: float = 0.0
    """``due`` and ``pause_s``: time of the next ask, and the pause after an unanswered one."""
