"""Counts by minute in; explained incidents and their events out.

May import state, ledger, flags, outbox.

`incidents` hands units and complete minutes to a module per kind, in the worker's transaction and by receive
time: `critical_incidents`, `share_incidents`, `live_incidents`, `clock_incidents`, `silence`,
`version_mismatch`, `drift_incidents` (`drift_watch` decides about `drift_streams`, `drift_causes` ranks);
`incident_writer` writes for them. `minute_counts` reads the counts, `rate_alarms` decides
with a stated chance of a false alarm, `explanation` says since when, where and what next. `stored_incidents`
lists incidents and takes what people do about them.
"""
