"""Drift: columns of a model's newest records against a reference.

May import series, service.
"""
