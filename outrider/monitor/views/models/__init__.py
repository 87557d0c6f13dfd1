"""Models: versions, champions, lineage and watches.

May import service.
"""
