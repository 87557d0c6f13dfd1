"""Detection of changes with a stated chance of a false alarm.

Evidence is a fortune that starts at 1 and bets on a change: while nothing has changed it ever reaches 1 / a
with a probability of at most a (Ville's inequality), however often it is checked. :class:`ShiftDetector`
compares blocks with a fixed, estimated reference; :func:`rising` compares counts after each possible onset
with all before it, moved by the :func:`weekly_odds` of a rhythm, :func:`loss_rise` does so for losses of
labelled observations, :func:`excess` compares counts with a given limit. All mix over the unknown time of the
change, :func:`select_alarms` spends one alpha over all streams, and :func:`onset_interval` estimates the time
of the change.
"""

from .excess import excess
from .loss_rises import LossBlocks, known_mix, loss_rise, onset_shares, rise_bound
from .multiplicity import select_alarms
from .onset import Onset, onset_interval
from .reference import Reference
from .rises import floor_of, rise_evidence, rising, smallest_rise
from .runs import first_of_runs
from .shift import ShiftDetector
from .spread import Spread
from .weekly import Hours, weekly_odds, weekly_rates

__all__ = [
    "Hours",
    "LossBlocks",
    "Onset",
    "Reference",
    "ShiftDetector",
    "Spread",
    "excess",
    "first_of_runs",
    "floor_of",
    "known_mix",
    "loss_rise",
    "onset_interval",
    "onset_shares",
    "rise_bound",
    "rise_evidence",
    "rising",
    "select_alarms",
    "smallest_rise",
    "weekly_odds",
    "weekly_rates",
]
