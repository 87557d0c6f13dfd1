"""Improvement: jobs, fine-tuning, shadow tests and the promotion gate.

May import state, ledger, flags, labels, datasets, models, model_kinds, outbox.
"""
