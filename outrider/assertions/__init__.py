"""Judgement of observed records: batches, assertions, windows and selection.

No I/O, no clock, no network.
"""

from .assertion import Assertion, Level, assertion
from .batch import Batch
from .checker import Checker
from .consistency import Consistency
from .consistency.calibration import Calibration, calibrate_boxes
from .consistency.tracker import Frame, IouTracker, MotionTracker, Tracker, Tracks, track
from .findings import Findings, WeakLabels
from .flags import AssertionsFired, Flags
from .learn.observations import Observations, learn_observations, rank_tracks
from .loading import load_assertions
from .predictor import Predictor
from .selection import Selection, select
from .stream import StreamingChecker
from .windows.group import Group
from .windows.window import Window

__all__ = [
    "Assertion",
    "AssertionsFired",
    "Batch",
    "Calibration",
    "Checker",
    "Consistency",
    "Findings",
    "Flags",
    "Frame",
    "Group",
    "IouTracker",
    "Level",
    "MotionTracker",
    "Observations",
    "Predictor",
    "Selection",
    "StreamingChecker",
    "Tracker",
    "Tracks",
    "WeakLabels",
    "Window",
    "assertion",
    "calibrate_boxes",
    "learn_observations",
    "load_assertions",
    "rank_tracks",
    "select",
    "track",
]
