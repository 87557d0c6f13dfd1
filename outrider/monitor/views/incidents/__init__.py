"""Incidents.

May import series, service.
"""
