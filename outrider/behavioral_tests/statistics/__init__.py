"""Statistics of failure rates: intervals, early stopping, two models."""

from outrider.assertions.statistics.rate_sequence import RateSequence
from outrider.assertions.statistics.wilson import wilson_interval

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
