"""Benchmarks: ratios to a peer or a physical floor, measured in the same run on the same data."""
