"""Profiles of columns.

May import service.
"""
