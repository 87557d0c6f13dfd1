"""The shadow engine: versions of a trunk group answering on one device.

May import settings, metrics, process.
"""
