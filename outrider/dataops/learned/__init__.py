"""Learned assertions: stored proposals and the files of accepted ones.

May import state, whole_file.
"""
