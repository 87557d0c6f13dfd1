"""Views: readers, routes, pages and templates of a concept in one folder.

May import settings, http, stream, process, intake, queries, web, compare.
"""
