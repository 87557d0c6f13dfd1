"""The model registry: versions, their lineage and their stage.

May import state, payloads, outbox.
"""
