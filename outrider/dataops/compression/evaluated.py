"""Evaluation of one variant, measured and judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

from .judged import Flips, SuiteVerdict
from .likeness import Likeness
from .slo import Slo
from .timing import Cost
from .variant import Variant

GAIN = 1.1
"""A variant is faster or smaller where it is so by a tenth; below that it is measurement noise."""
PENALTY = 100.0
"""What one record in a hundred too many that is answered differently costs: a halving of the time."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A variant with its figures; ``failure`` says why there are none."""

    variant: Variant
    cost: Cost | None = None
    likeness: Likeness | None = None
    flips: Flips | None = None
    suites: SuiteVerdict | None = None
    zeros: float = 0.0
    """Share of zeros among the weights of a pruned variant that is run dense."""
    failure: str = ""

    @property
    def figures(self) -> dict[str, float | None]:
        """Figures to bound, by name; None where not measured."""
        cost, like = self.cost, self.likeness
        return {
            "p50_ms": None if cost is None else cost.p50_ms,
            "p99_ms": None if cost is None else cost.p99_ms,
            "rows_per_s": None if cost is None else cost.rows_per_s,
            "memory_mb": None if cost is None else cost.memory_bytes / 1e6,
            "agreement": None if like is None else like.agreement,
            "flips": None if self.flips is None else self.flips.rate,
            "regressions": None if self.suites is None else float(len(self.suites.regressions)),
        }

    def smaller(self, champion: Cost) -> float:
        """The champion's memory over this one's."""
        return champion.memory_bytes / self.cost.memory_bytes if self.cost else 1.0

    def marks(self, champion: Cost) -> list[str]:
        """Remarks beside the figures: missing gains and broken behavior."""
        if self.failure or self.cost is None:
            return [self.failure]
        told = []
        gains = (self.cost.speed, self.cost.latency_speed, self.smaller(champion))
        if self.variant.name != "champion" and max(gains) < GAIN:
            told.append("not faster, smaller or cheaper")
            if self.zeros > 0.1:
                told[-1] += f": {self.zeros:.0%} of its weights are zeros, multiplied like any others"
        if self.suites is not None and self.suites.regressions:
            more = len(self.suites.regressions) - 1
            told.append(f"fails {self.suites.regressions[0]}" + (f" and {more} more" if more else ""))
        if self.flips is not None and self.flips.rate > 0:
            told.append(self.flips.worst)
        return told

    def gain(self, champion: Cost) -> float:
        """Doublings of speed plus half the doublings of smallness; champion 0.0."""
        speed = self.cost.speed if self.cost else 1.0
        return log2(max(speed, 1e-3)) + 0.5 * log2(max(self.smaller(champion), 1e-3))

    def is_useful(self, champion: Cost) -> bool:
        """True for a faster, smaller or cheaper variant than the champion."""
        if self.cost is None:
            return False
        return max(self.cost.speed, self.cost.latency_speed, self.smaller(champion)) >= GAIN

    def score(self, champion: Cost, slo: Slo) -> float | None:
        """Promise of going on from here, higher is better, or None.

        Its gain, less what its answers miss of what must be kept.
        """
        if self.cost is None or self.likeness is None:
            return None
        short = max(0.0, slo.bounds["agreement"] - self.likeness.agreement)
        broken = 0 if self.suites is None else len(self.suites.regressions)
        return self.gain(champion) - PENALTY * short - broken

    def to_dict(self, champion: Cost, slo: Slo) -> dict[str, Any]:
        """Plain values that JSON can carry."""
        cost, like = self.cost, self.likeness
        return {
            "variant": self.variant.name,
            "steps": {
                "weights": self.variant.weights,
                "distil": self.variant.is_distilled,
                "recipe": list(self.variant.recipe),
            },
            "failure": self.failure,
            **self.figures,
            "speed": None if cost is None else cost.speed,
            "latency_speed": None if cost is None else cost.latency_speed,
            "memory_share": None if cost is None else 1 / self.smaller(champion),
            "calls": None if cost is None else cost.calls,
            "agreement_low": None if like is None else like.low,
            "noise": None if like is None else like.noise,
            "score_delta": None if like is None or like.score_delta != like.score_delta else like.score_delta,
            "flips_noise": None if self.flips is None else self.flips.noise,
            "regressed": [] if self.suites is None else list(self.suites.regressions),
            "marks": self.marks(champion),
            "missed": [] if self.failure else slo.missed(self.figures),
        }


def best(found: Sequence[Evaluated], champion: Cost, slo: Slo) -> Evaluated | None:
    """Most gaining useful variant within every bound, or None."""
    passing = [each for each in found if each.is_useful(champion) and not slo.missed(each.figures)]
    return max(passing, key=lambda each: each.gain(champion), default=None)
