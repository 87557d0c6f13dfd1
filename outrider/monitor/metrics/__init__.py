"""Metric catalogue, registry, and channel between processes."""
