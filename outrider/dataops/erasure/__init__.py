"""Erasure: a person or records in, a data folder without them out.

May import state, journal, ledger, payloads, datasets, loaders, backup, whole_file, comparisons, judges.

`search` finds what belongs to a subject; `state_rows`, `journal_blocks` and `files` remove it, each as often
as it is asked; `erasing` runs them in an order that can begin again after a kill, and ends with files that
have no freed pages (`compaction`). What is left are places without values, and keyed hashes (`hashes`).
"""
