"""Processes: how they start, end, log, keep time and exchange frames.

May import settings.
"""
