"""The ledger: effects of one unit in, one transaction out.

May import state.

`commit` writes; `records`, `answers`, `champions`, `cursors`, `checkpoints`, `sketches` and `counters` read.
"""
