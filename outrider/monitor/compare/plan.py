"""Plan of a comparison: margin, share asked again, slices, end."""

from dataclasses import dataclass

from outrider.assertions.comparison.agreement import EMBEDDING
from outrider.errors import ConfigError

QUIET, ALL = 0.25, 1.0
"""Shares of questions that are asked again, while there is no noise and once there is."""


@dataclass(frozen=True, slots=True)
class Until:
    """End of a comparison: a verdict on every candidate, records, or time."""

    is_decided: bool = True
    records: int = 10_000
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """Plan of one comparison."""

    margin: float = 0.02
    """Share of answers that may differ beyond noise for a candidate to count as close, in (0, 1)."""
    twice: float | None = None
    """Share of questions that are asked again, in [0, 1]; None: a quarter, all where there is noise."""
    is_deterministic: bool = False
    """Production answers a question always alike: its noise is none."""
    target: str = ""
    """Output that is the answer; empty: found in the answers."""
    slices: tuple[str, ...] = ()
    has_judge: bool = False
    has_embedding: bool = False
    seed: int = 0
    agree: tuple[str, ...] = ()
    """What of texts has to agree: ``words``, ``facts``, a path of JSON, classes, or their ``embedding``."""
    tolerance: float = 0.01
    """Scores differ that are farther apart than this share of the spread of production's."""

    def __post_init__(self) -> None:
        if EMBEDDING in self.agree and not self.has_embedding:
            raise ConfigError("--agree embedding needs --embed: a model that makes vectors of texts")

    def share_again(self, *, is_noisy: bool) -> float:
        if self.twice is not None:
            return self.twice
        return ALL if is_noisy else QUIET
