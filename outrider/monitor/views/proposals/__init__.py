"""Proposals of assertions that stored traffic speaks for.

May import service.
"""
