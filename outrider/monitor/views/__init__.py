"""Views: readers, routes, pages and templates of a concept in one folder.

May import settings, metrics, http, stream, process, intake, queries, web, compare.
"""
