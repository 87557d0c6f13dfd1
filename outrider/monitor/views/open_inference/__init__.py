"""Health and metadata for clients of the Open Inference Protocol.

May import no other room.
"""
