"""Overview of a model.

May import profiles, series, service, triggers.
"""
