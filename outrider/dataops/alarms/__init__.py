"""Counts by minute in; explained incidents and their events out.

May import state, ledger, flags, outbox.

`incidents` hands units and complete minutes to a module per kind, in the worker's transaction and by receive
time: `critical_incidents`, `share_incidents`, `live_incidents`, `clock_incidents`, `silence`,
`assertion_silence`, `version_mismatch`, `retired_versions`, `performance`, `drift_incidents` (`drift_watch`
decides about `drift_streams`, `drift_causes` ranks); `incident_writer` writes for them. `minute_counts` and
`version_losses` read the counts, `watched_streams` what is usual, `rate_alarms` and `loss_alarms` decide with
a stated chance of a false alarm, `version_causes` which version it is, `explanation` and `loss_evidence` say
since when, where and what next, `incident_row` how one says it. `stored_incidents` lists incidents and
takes what people do about them; `model_events` lists what else has changed.
"""
