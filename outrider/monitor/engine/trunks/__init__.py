"""Versions of one trunk in, one module with shared computations out."""
