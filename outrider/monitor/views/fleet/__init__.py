"""Fleet: a line per model, worst first.

May import series, service.
"""
