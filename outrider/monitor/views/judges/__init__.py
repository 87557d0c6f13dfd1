"""Judges with cost and agreement.

May import service.
"""
