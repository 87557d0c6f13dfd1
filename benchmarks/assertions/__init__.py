"""Assertions: what they find on real data, and what they cost."""
