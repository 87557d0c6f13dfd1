"""Processes: start, end, logs, clock and exchange of frames.

May import settings.

`supervisor` (standard library only) binds the port, migrates, starts intake, worker and trainer and starts
them again. The worker starts the assertion host and the engines, because it kills them. Every child ends
with the supervisor: a control pipe and, on Linux, the parent-death signal (`child`). `clock` makes a step
against the monotonic clock a journal row; behind it windows begin anew. `bell`: the server rings, a worker at
rest hears. `late_pandas` leaves pandas to who imports it.
"""
