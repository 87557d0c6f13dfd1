"""Changes of images, as torch operations on whole batches.

Images have shape (n, height, width) or (n, channels, height, width). All functions keep shape and type; those
with ``value_range``, the lowest and highest pixel value, clip to it. ``device`` is the torch device.
"""

from .geometry import flip, rotate, shift, zoom
from .jpeg import jpeg
from .light import brightness, channels, contrast, gamma, grey
from .sensor import blur, noise, occlude, salt_and_pepper, stuck

__all__ = [
    "blur",
    "brightness",
    "channels",
    "contrast",
    "flip",
    "gamma",
    "grey",
    "jpeg",
    "noise",
    "occlude",
    "rotate",
    "salt_and_pepper",
    "shift",
    "stuck",
    "zoom",
]
