"""Unit under way in a slot.

Its pending asks, and the data to continue with.
"""

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
    """A unit from its first look to its commit."""

    after: int
    """Cursor behind which it lies."""
    unit: Unit
    began: float
    """When the slot had time for it, by the timer of the objectives."""
    prepared: Prepared | None = None
    """Records of the champion's unit, once they are asked about."""
    version: str | None = None
    """Who is asked."""
    request: InferenceRequest | None = None
    """Of the predictions; None where nobody answers, or before."""
    is_ahead: bool = False
    """Whether it was asked about before its turn: what is shed is not decided yet."""
    work: Work[Effects] | None = None
    """What judges it, once there are answers; ``questions`` is what it waits for."""
    questions: list[InferenceRequest] = field(default_factory=list)
    timings: Timings = field(default_factory=Timings)
    seen: int = 0
    """Last block of the journal that was there when nothing to ask ahead lay behind the unit."""

    @property
    def is_answered(self) -> bool:
        """True where every ask has been answered."""
        version = self.version or ""
        asked = self.questions if self.request is None else [self.request, *self.questions]
        return all(request.has(version) for request in asked)

    def resume(self) -> Effects | Sequence[Batch]:
        """Effects of the unit, or further records to ask about.

        Before the effects are known, the version is asked about these.
        """
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
    """A unit of a challenger: records that the champion's slot has registered."""

    after: int
    unit: Unit
    began: float
    kept: NDArray[np.intp]
    """Rows of the unit that are judged."""
    known: int
    """Registered records; some payloads may be gone."""
    batch: Batch
    timings: Timings
    request: InferenceRequest | None = None
    """Of the predictions; None where nobody answers, or before."""
    prefetched: Prefetched | None = None
    """Made with the champion, or with another challenger."""
    due: float = 0.0
    pause_s: float = 0.0
    """``due`` and ``pause_s``: when it is asked about again, and how long it rests after an ask without an
    answer."""
