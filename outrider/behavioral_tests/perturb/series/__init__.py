"""Changes of time series.

Series are tensors of shape (time,) or (time, channels), or lists of numbers of any length.
"""

from .clock import channels, resample, shift, warp
from .sensor import drift, dropout, gap, jitter, scaling, spike, stuck

__all__ = [
    "channels",
    "drift",
    "dropout",
    "gap",
    "jitter",
    "resample",
    "scaling",
    "shift",
    "spike",
    "stuck",
    "warp",
]
