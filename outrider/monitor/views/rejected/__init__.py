"""Rejected records by reason.

May import service.
"""
