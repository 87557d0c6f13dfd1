"""Triggers of retraining: signals in, logged decisions, runs and suggestions out.

May import state, flags, datasets, models, outbox, improvement.
"""
