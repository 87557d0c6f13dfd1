"""Payloads: references in, bytes, tensors and texts out.

May import whole_file.
"""
