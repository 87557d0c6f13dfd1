"""Flags in; reviews, quality and live rates of assertions out.

May import state, ledger, labels, outbox.

`rate_limit` counts new flags exactly per slice and minute before they are committed and thins what exceeds
``flags.per_minute``. `reviews` and `quality` hold what people said for `outrider.assertions.flags.quality`,
which is pure; `live_rates` adds verdicts of live tests to a confidence sequence, whose alarm is an incident.
A person's suspension is a row that the worker follows; nothing but strikes suspends by itself.
"""
