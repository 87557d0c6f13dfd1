"""Flags of assertions as columns, and the quality of these assertions."""

from .flags import AssertionsFired, FiredRows, Flags, Seen, flags_of, found_in

__all__ = ["AssertionsFired", "FiredRows", "Flags", "Seen", "flags_of", "found_in"]
