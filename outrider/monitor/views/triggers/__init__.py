"""Triggers of retraining, and alerts from outside.

May import service.
"""
