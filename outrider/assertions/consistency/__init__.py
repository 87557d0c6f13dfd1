"""Consistency of one identity over time: tracks, scenes, sightings and their attributes."""

from .consistency import Check, Consistency, Interpolate

__all__ = ["Check", "Consistency", "Interpolate"]
