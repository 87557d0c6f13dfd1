"""Plan of a comparison: margin, repeated questions, slices, end."""

from dataclasses import dataclass

from outrider.assertions.comparison.agreement import EMBEDDING
from outrider.errors import ConfigError

QUIET, ALL = 0.25, 1.0
"""Shares of questions asked twice, before and after an answer changed when asked again."""


@dataclass(frozen=True, slots=True)
class Until:
    """End of a comparison: a verdict on every candidate, a number of records, or a duration."""

    is_decided: bool = True
    records: int = 10_000
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ComparePlan:
    margin: float = 0.02
    """Maximum share of differing answers, less those that change when asked again, of a candidate that
    counts as close; in (0, 1)."""
    twice: float | None = None
    """Share of questions asked twice to measure the noise, in [0, 1]; None: a quarter, or all once
    there is some."""
    is_deterministic: bool = False
    """Production repeats its answers exactly, so its noise is not measured."""
    target: str = ""
    """Output to compare; empty: detected from the answers."""
    slices: tuple[str, ...] = ()
    has_judge: bool = False
    has_embedding: bool = False
    seed: int = 0
    agree: tuple[str, ...] = ()
    """Parts of texts that must agree: ``words``, ``facts``, a JSON path, classes or ``embedding``;
    empty: whole texts."""
    tolerance: float = 0.01
    """Scores differ if they are farther apart than this share of the spread of production's scores."""

    def __post_init__(self) -> None:
        if EMBEDDING in self.agree and not self.has_embedding:
            raise ConfigError("--agree embedding needs --embed: a model that makes vectors of texts")

    def share_again(self, *, is_noisy: bool) -> float:
        if self.twice is not None:
            return self.twice
        return ALL if is_noisy else QUIET
