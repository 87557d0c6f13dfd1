"""Datasets: versions, rows, differences, tags and quarantine.

May import service.
"""
