"""Plan of a comparison: margin, share asked again, slices, end."""

from dataclasses import dataclass

from outrider.assertions.comparison.agreement import EMBEDDING
from outrider.errors import ConfigError

QUIET, ALL = 0.25, 1.0
"""Shares of questions that are asked again, while there is no noise and once there is."""


@dataclass(frozen=True, slots=True)
class Until:
    """End of a comparison: a verdict on every candidate, records, or time.

    Attributes
    ----------
    is_decided
        End with the last verdict.
    records
        Most records that are asked about.
    seconds
        Longest time, None for any.
    """

    is_decided: bool = True
    records: int = 10_000
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """Plan of one comparison.

    Attributes
    ----------
    margin
        Share of answers that may differ beyond noise for a candidate to count as close, in (0, 1).
    twice
        Share of questions that production and candidates are asked again, in [0, 1]. None: a quarter while
        nobody contradicts himself, then all, because then these questions alone tell.
    is_deterministic
        Production answers a question always alike: its noise is none.
    target
        Output that is the answer; empty: found in the answers.
    slices
        Columns whose values are looked at apart.
    has_judge
        A judge says of pairs that differ which side is better.
    has_embedding
        A model of this machine makes vectors of texts, by which they are compared as a whole.
    seed
        Of the draw of questions that are asked again.
    agree
        What of texts was declared to have to agree: ``words``, ``facts``, a path of JSON, classes, or, where
        there is one, their ``embedding``.
    tolerance
        Scores differ where they are farther apart than this share of the spread of production's.
    """

    margin: float = 0.02
    twice: float | None = None
    is_deterministic: bool = False
    target: str = ""
    slices: tuple[str, ...] = ()
    has_judge: bool = False
    has_embedding: bool = False
    seed: int = 0
    agree: tuple[str, ...] = ()
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        if EMBEDDING in self.agree and not self.has_embedding:
            raise ConfigError("--agree embedding needs --embed: a model that makes vectors of texts")

    def share_again(self, *, is_noisy: bool) -> float:
        """Share of questions that are asked again."""
        if self.twice is not None:
            return self.twice
        return ALL if is_noisy else QUIET
