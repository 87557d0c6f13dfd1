"""Versions of one trunk in, one module computing what they share out.

May import asks, executor, faults.
"""
