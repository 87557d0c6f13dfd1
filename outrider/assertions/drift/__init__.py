"""Drift between a reference and a current window.

:func:`drift_report` tests each column of frames, tables and batches, :func:`profile_drift` each column of
stored profiles by the same rule; :class:`ShareWatch` tests shares of profiles after every window. The
distances take values, or counts in the same cells.
"""

from .classifier import DomainClassifier
from .distances import (
    chi_square,
    jensen_shannon,
    ks_distance,
    ks_of_counts,
    psi,
    total_variation,
    wasserstein,
    wasserstein_of_counts,
)
from .energy import EnergyDistance, energy_distance
from .evidence import holm
from .profiled import profile_drift
from .report import drift_report
from .result import ColumnDrift, DriftReport
from .share_watch import ShareStreams, ShareWatch, WatchRule
from .shares import ShareCounter, column_shares

__all__ = [
    "ColumnDrift",
    "DomainClassifier",
    "DriftReport",
    "EnergyDistance",
    "ShareCounter",
    "ShareStreams",
    "ShareWatch",
    "WatchRule",
    "chi_square",
    "column_shares",
    "drift_report",
    "energy_distance",
    "holm",
    "jensen_shannon",
    "ks_distance",
    "ks_of_counts",
    "profile_drift",
    "psi",
    "total_variation",
    "wasserstein",
    "wasserstein_of_counts",
]
