"""Improvement: jobs, shadow tests, watches and the promotion gate.

May import state, ledger, flags, labels, datasets, models, model_kinds, outbox.
"""
