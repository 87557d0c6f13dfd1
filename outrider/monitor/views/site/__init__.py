"""Site: static files and the page of the API.

May import service.
"""
