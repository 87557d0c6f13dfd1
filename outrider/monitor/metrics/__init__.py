"""Metrics: the catalogue, its registry and the channel between processes.

May import no other room.
"""
