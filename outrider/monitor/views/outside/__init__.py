"""Trainings outside: their tasks and uploaded versions.

May import service.
"""
