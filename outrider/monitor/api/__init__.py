"""The JSON API: requests in, read models and changes of state out.

May import settings, metrics, http, stream, process, intake, queries.
"""
