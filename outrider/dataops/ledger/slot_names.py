"""Names of slots: a cursor each."""

OTHER_SLOTS = ("champion", "backfill", "live.", "judge.")
"""Begins of slots that are no version's."""
