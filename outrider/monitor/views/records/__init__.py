"""Records: one with all that is known of it, and their export.

May import service.
"""
