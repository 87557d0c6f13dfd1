"""Statistics of failure rates: intervals, early ends, two models."""

from outrider.assertions.rate_sequence import RateSequence

from .finite import decided, rate_bounds
from .intervals import wilson_interval
from .paired import holm, mcnemar_p, paired_difference

__all__ = [
    "RateSequence",
    "decided",
    "holm",
    "mcnemar_p",
    "paired_difference",
    "rate_bounds",
    "wilson_interval",
]
