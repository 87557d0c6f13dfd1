"""Slices on which a model is worse.

May import service.
"""
