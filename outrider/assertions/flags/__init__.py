"""Flags of assertions as columns, and quality measures of assertions."""

from .flags import AssertionsFired, FiredRows, Flags, Seen, flags_of, found_in

__all__ = ["AssertionsFired", "FiredRows", "Flags", "Seen", "flags_of", "found_in"]
