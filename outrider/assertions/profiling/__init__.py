"""Profiles: weighted counts of all columns, mergeable to any range.

Numbers are counted in bins whose edges a reference fixed, strings, truth values and class numbers as
categories; texts by length and language, images by brightness and sharpness. ``layout`` fits, ``profile``
counts and merges, ``summary`` shows. Counts are exact, and all that an alarm reads. What is shown beside
them, quantiles (`points`) and numbers of distinct values (`distinct`), is approximate, and keeps no value
that fewer than ten entities had.
"""

from .layout import REST, ColumnLayout, ProfileLayout
from .profile import Profile, merged
from .summary import RANKS, Category, ColumnSummary, summaries

__all__ = [
    "RANKS",
    "REST",
    "Category",
    "ColumnLayout",
    "ColumnSummary",
    "Profile",
    "ProfileLayout",
    "merged",
    "summaries",
]
