"""The web pages: rendered on the server, readable without JavaScript.

May import settings, http, queries.
"""
