"""Triggers of retraining: signals in, logged decisions, runs and suggestions out.

May import state, ledger, alarms, datasets, models, outbox, improvement.
"""
