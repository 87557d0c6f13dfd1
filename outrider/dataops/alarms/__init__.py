"""Counts by minute in; explained incidents and their events out.

May import state, ledger, flags, outbox.

`incidents` opens, follows and resolves incidents in the worker's transaction, by receive time.
`minute_counts` reads the counts, `rate_alarms` decides with a stated chance of a false alarm, `explanation`
says since when, where and what next, `silence` hears what stopped, `version_mismatch` who states another
version. `stored_incidents` lists incidents and takes what people do about them.
"""
