"""Intake: requests in, columns of records durably committed out.

May import settings, metrics, http, stream, process.

A protocol (`protocols`) reads one request into columns and says how its sender is answered; `asgi` does the
rest, so every protocol has the same limits, durability and counts. Records of known columns take a fast path
(`fast_json`, `fast_arrow`, `protocols.quick_tensors`); whatever these refuse goes to `block_builder`, which
names faults, widens types and learns columns: a type is declared or decided by its first thousand values
(`column_weights`; votes are notes in the journal), and beyond ``limits.columns`` rare fields share one JSON
column (`rare_fields`). A block keeps the type it was stored in, so a replay judges what was judged. A request
and a response that come apart wait for each other in the journal (`join`, in the thread of `group_commit`,
the one writer of the journal).
"""
