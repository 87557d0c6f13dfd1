"""Counts by minute in; explained incidents and their events out.

May import state, ledger, flags, outbox.

`incidents` hands units and complete minutes to a module per kind, in the worker's transaction and by receive
time: `critical_incidents`, `share_incidents`, `live_incidents`, `clock_incidents`, `silence`,
`assertion_silence`, `version_mismatch`; `incident_writer` writes for them. `minute_counts` reads the counts,
`rate_alarms` decides with a stated chance of a false alarm, `version_causes` which version it is,
`explanation` says since when, where and what next. `stored_incidents` lists incidents and takes what people
do about them; `model_events` lists what else has changed.
"""
