"""Comparisons of candidates with production that the service keeps.

May import service.
"""
