"""Retrainings with their stories, and verdicts of the gate.

May import service, jobs, triggers.
"""
