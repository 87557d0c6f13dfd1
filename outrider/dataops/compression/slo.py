"""Bounds that a variant must keep: ``p99_ms=20,agreement=0.99``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LIMITS: Mapping[str, Literal["most", "least"]] = {
    "p50_ms": "most",
    "p99_ms": "most",
    "rows_per_s": "least",
    "memory_mb": "most",
    "agreement": "least",
    "flips": "most",
    "regressions": "most",
}
"""Figures that may be bounded, and from which side; see docs/compression.md."""
DEFAULTS: Mapping[str, float] = {"agreement": 0.99, "flips": 0.01, "regressions": 0}
"""Bounds that hold unless others are given: no behavior is traded for speed unnoticed."""


@dataclass(frozen=True, slots=True)
class Slo:
    """Bounds by figure, completed from :data:`DEFAULTS`.

    Examples
    --------
    >>> slo = Slo.parse("p99_ms=20, agreement=0.995")
    >>> slo.missed({"p99_ms": 31.0, "agreement": 0.999, "flips": 0.0, "regressions": 0})
    ['p99_ms 31 > 20']
    """

    bounds: Mapping[str, float]

    @classmethod
    def parse(cls, text: str) -> "Slo":
        """Bounds of a text.

        Raises
        ------
        ValueError
            If a figure is not known or no number.
        """
        bounds = dict(DEFAULTS)
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, _, value = (piece.strip() for piece in part.partition("="))
            if name not in LIMITS:
                raise ValueError(f"slo: NAME=NUMBER with one of {', '.join(LIMITS)} expected, got {part!r}")
            try:
                bounds[name] = float(value)
            except ValueError:
                raise ValueError(f"slo: {name}: a number expected, got {value!r}") from None
        return cls(bounds)

    def missed(self, figures: Mapping[str, float | None]) -> list[str]:
        """Bounds that figures miss, as text; an unmeasured figure keeps none."""
        found = []
        for name, bound in self.bounds.items():
            value = figures.get(name)
            if value is None:
                if name in DEFAULTS and bound == DEFAULTS[name]:
                    continue  # there are no suites or assertions
                found.append(f"{name} was not measured")
            elif not (value <= bound if LIMITS[name] == "most" else value >= bound):
                sign = ">" if LIMITS[name] == "most" else "<"
                found.append(f"{name} {value:.4g} {sign} {bound:g}")
        return found
