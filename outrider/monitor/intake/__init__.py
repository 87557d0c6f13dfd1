"""Intake: requests in, columns of records durably committed out.

May import settings, metrics, http, stream, process.
"""
