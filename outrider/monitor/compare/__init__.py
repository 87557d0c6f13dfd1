"""Comparison without labels: traffic in, a verdict on each candidate out.

May import engine, files, http, intake, process, registry, settings.
"""
