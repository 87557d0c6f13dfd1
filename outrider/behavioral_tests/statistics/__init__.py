"""How sure a failure rate is, when a test may end early, and whether two models differ."""

from .finite import decided, rate_bounds
from .intervals import wilson_interval

__all__ = ["decided", "rate_bounds", "wilson_interval"]
