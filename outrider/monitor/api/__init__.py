"""The JSON API: requests in, read models and changes of state out.

May import settings, metrics, http, intake, queries.
"""
