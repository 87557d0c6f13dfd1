"""Judges what was observed: batches, assertions, windows and selection. No I/O, no clock, no network."""

from .assertion import Assertion, Level, assertion
from .batch import Batch
from .checker import Checker
from .findings import Findings, WeakLabels
from .flags import AssertionsFired, Flags
from .group import Group
from .loading import load_assertions
from .predictor import Predictor
from .selection import Selection, select
from .stream import StreamingChecker
from .window import Window

__all__ = [
    "Assertion",
    "AssertionsFired",
    "Batch",
    "Checker",
    "Findings",
    "Flags",
    "Group",
    "Level",
    "Predictor",
    "Selection",
    "StreamingChecker",
    "WeakLabels",
    "Window",
    "assertion",
    "load_assertions",
    "select",
]
