"""Judges what was observed: batches, assertions, windows and selection. No I/O, no clock, no network."""

from .assertion import Assertion, Level, assertion
from .batch import Batch
from .checker import AssertionsFired, Checker, Flags
from .consistency import Consistency
from .findings import Findings, WeakLabels
from .group import Group
from .loading import load_assertions
from .predictor import Predictor
from .selection import Selection, select
from .tracker import Frame, IouTracker, MotionTracker, Tracker, Tracks, track
from .window import Window

__all__ = [
    "Assertion",
    "AssertionsFired",
    "Batch",
    "Checker",
    "Consistency",
    "Findings",
    "Flags",
    "Frame",
    "Group",
    "IouTracker",
    "Level",
    "MotionTracker",
    "Predictor",
    "Selection",
    "Tracker",
    "Tracks",
    "WeakLabels",
    "Window",
    "assertion",
    "load_assertions",
    "select",
    "track",
]
