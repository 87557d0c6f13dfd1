"""Suites: outcomes of behavioral tests by version, and new cases.

May import assertions, overview, service.
"""
