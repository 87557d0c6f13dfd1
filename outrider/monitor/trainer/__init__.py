"""The trainer: jobs in, datasets, candidates, evidence and decisions out.

May import settings, metrics, http, stream, process, engine, registry.
"""
