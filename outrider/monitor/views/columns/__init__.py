"""Columns that intake learned.

May import no other room.
"""
