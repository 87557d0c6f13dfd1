"""The journal: blocks in, numbered and durable, read by cursor, expired.

May import state, ledger.
"""
