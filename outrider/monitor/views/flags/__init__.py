"""Flags and their reviews.

May import service.
"""
