"""Fairness: metrics of groups and their gaps.

May import series, service.
"""
