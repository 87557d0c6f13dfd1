"""How sure a failure rate is, when a test may end early, and whether two models differ."""

from .intervals import wilson_interval
from .sequence import RateSequence

__all__ = ["RateSequence", "wilson_interval"]
