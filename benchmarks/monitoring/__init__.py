"""Benchmarks of monitoring: alarms, drift, profiles, series."""
