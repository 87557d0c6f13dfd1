"""Pauses of shadow models and live tests.

May import service.
"""
