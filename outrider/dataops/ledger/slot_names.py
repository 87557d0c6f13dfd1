"""Names of slots: a cursor each."""

OTHER_SLOTS = ("champion", "backfill", "live.", "judge.")
"""How slots begin that are no version's."""
