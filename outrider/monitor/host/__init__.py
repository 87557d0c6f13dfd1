"""The assertion host: batches in, verdicts of user code out.

May import settings, metrics, process.
"""
