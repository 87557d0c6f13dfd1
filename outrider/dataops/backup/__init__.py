"""Backup: a data folder in, a copy with a manifest out.

May import access, state, journal, payloads, whole_file.
"""
