"""Triggers of retraining: signals in, logged decisions, runs and suggestions out.

May import state, alarms, datasets, models, outbox, improvement.
"""
