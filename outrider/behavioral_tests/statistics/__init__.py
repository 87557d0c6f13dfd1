"""Statistics of failure rates: intervals, early ends, two models."""

from outrider.assertions.rate_sequence import RateSequence
from outrider.assertions.wilson import wilson_interval

from .finite_population import decided, rate_bounds
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
