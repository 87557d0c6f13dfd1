"""Erasures.

May import service.
"""
