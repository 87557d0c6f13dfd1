"""Versions of one trunk in, one module computing what they share out."""
