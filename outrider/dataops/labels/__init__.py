"""The label queue: requests in, labels, weak labels and estimates out.

May import state, journal.
"""
