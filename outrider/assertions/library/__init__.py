"""Assertions ready to use, one family a file; docs/assertion-catalogue.md lists them."""

from .detection import class_size, duplicate_boxes, fit_class_sizes, multibox
from .tracking import appear, flicker, jump

__all__ = [
    "appear",
    "class_size",
    "duplicate_boxes",
    "fit_class_sizes",
    "flicker",
    "jump",
    "multibox",
]
