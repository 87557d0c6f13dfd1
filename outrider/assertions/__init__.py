"""Judges what was observed: batches, assertions, windows and selection. No I/O, no clock, no network."""

from .assertion import Assertion, Level, assertion
from .batch import Batch
from .checker import AssertionsFired, Checker, Flags
from .findings import Findings, WeakLabels
from .group import Group
from .loading import load_assertions
from .predictor import Predictor
from .selection import Selection, select
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
    "WeakLabels",
    "Window",
    "assertion",
    "load_assertions",
    "select",
]
