"""Figures of the traffic: columns, profiles, groups, weak slices, series."""
