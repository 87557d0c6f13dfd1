"""Variant of a champion, with its figures and verdicts."""

from dataclasses import dataclass, field
from math import log2
from typing import Any

from outrider.dataops.model_kinds.source import Source

from .judged import Flips, SuiteVerdict
from .likeness import Likeness
from .slo import Slo
from .timing import Cost

GAIN = 1.1
"""A variant is faster or smaller where it is so by a tenth; below that it is measurement noise."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Smaller or faster copy of a champion, or the champion itself, as it was measured."""

    name: str
    source: Source
    weights: bytes | None = field(repr=False)
    """None for those of the champion's folder."""
    cost: Cost
    likeness: Likeness
    flips: Flips | None
    suites: SuiteVerdict | None
    resident_mb: float | None = None
    """Memory that a fresh process gained by loading it and answering once."""

    @property
    def figures(self) -> dict[str, float | None]:
        """Figures to bound, by name; None where not measured."""
        return {
            "p50_ms": self.cost.p50_ms,
            "p99_ms": self.cost.p99_ms,
            "rows_per_s": self.cost.rows_per_s,
            "memory_mb": self.cost.memory_bytes / 1e6,
            "agreement": self.likeness.agreement,
            "flips": None if self.flips is None else self.flips.rate,
            "regressions": None if self.suites is None else float(len(self.suites.regressions)),
        }

    @property
    def gain(self) -> float:
        """Doublings of speed plus half the doublings of smallness; champion 0.0."""
        return log2(max(self.cost.speed, 1e-3)) + 0.5 * log2(max(self.cost.smaller, 1e-3))

    @property
    def is_useful(self) -> bool:
        """True for a faster, smaller or cheaper variant than the champion."""
        return max(self.cost.speed, self.cost.latency_speed, self.cost.smaller) >= GAIN

    def marks(self) -> list[str]:
        """Remarks beside the figures: missing gains and broken behavior."""
        marks = [] if self.is_useful or self.name == "champion" else ["not faster, smaller or cheaper"]
        if self.suites is not None and self.suites.regressions:
            more = len(self.suites.regressions) - 1
            marks.append(f"fails {self.suites.regressions[0]}" + (f" and {more} more" if more else ""))
        if self.flips is not None and self.flips.rate > 0:
            marks.append(self.flips.worst)
        return marks

    def to_dict(self, slo: Slo) -> dict[str, Any]:
        """Plain values that JSON can carry."""
        cost, like = self.cost, self.likeness
        return {
            "variant": self.name,
            "recipe": list(self.source.recipe),
            **self.figures,
            "speed": cost.speed,
            "latency_speed": cost.latency_speed,
            "memory_share": 1 / cost.smaller,
            "calls": cost.calls,
            "rows": like.rows,
            "agreement_low": like.low,
            "noise": like.noise,
            "score_delta": like.score_delta,
            "flips_noise": None if self.flips is None else self.flips.noise,
            "regressed": [] if self.suites is None else list(self.suites.regressions),
            "resident_mb": self.resident_mb,
            "marks": self.marks(),
            "missed": slo.missed(self.figures),
        }
