"""The worker: blocks in, verdicts and flags in one transaction out.

May import settings, metrics, stream, process, engine, host, registry.
"""
