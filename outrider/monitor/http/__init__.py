"""HTTP: keys, limits, problems and responses that every route shares.

May import settings.
"""
