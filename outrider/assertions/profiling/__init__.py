"""Profiles: weighted counts of all columns, mergeable to any range.

Numbers are counted in bins with edges from a reference; strings, booleans and class numbers as categories;
texts by length and language, images by brightness and sharpness. ``layout`` fits, ``profile`` counts and
merges, ``summary`` shows. Counts are exact, and alarms use nothing else. Displayed quantiles (`points`) and
numbers of distinct values (`distinct`) are approximate, and no value of fewer than ten entities is kept.
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
