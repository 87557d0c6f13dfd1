"""Flags in, incidents, reviews and figures of assertions out.

May import state, ledger, labels, outbox.

`rate_limit` counts new flags exactly per slice and minute before they are committed and thins what exceeds
``flags.per_minute``; `incidents` opens, follows and resolves incidents in the same transaction, by receive
time: `minute_counts` reads the counts, `rate_alarms` decides with a stated chance of a false alarm,
`explanation` says since when, where and what next, `silence` hears what stopped. `reviews` and `quality` hold
what people said for `outrider.assertions.quality`, which is pure;
`live_rates` adds verdicts of live tests to a confidence sequence: its alarm is an incident. A person's
suspension is a row that the worker follows; nothing but strikes suspends by itself.
"""
