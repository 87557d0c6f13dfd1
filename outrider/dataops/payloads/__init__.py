"""Payloads: references in, bytes, tensors and texts out.

May import no other room.
"""
