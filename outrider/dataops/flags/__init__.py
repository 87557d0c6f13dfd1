"""Flags in, incidents, reviews and figures of assertions out.

May import state, ledger, labels, outbox.
"""
