"""The ledger: effects of one unit in, one transaction out.

May import state.

`commit` writes; `records`, `answers`, `champions`, `cursors`, `checkpoints`, `stored_profiles` and
`counters` read; `profiles` gathers records until their minute ends. `outcomes` counts what labels say,
`losses` the same by block of first labels; `cube` declares the tables of all counts, ages and reads them.
"""
