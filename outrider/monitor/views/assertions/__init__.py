"""Assertions with their figures, overlaps and suspensions.

May import overview, service.
"""
