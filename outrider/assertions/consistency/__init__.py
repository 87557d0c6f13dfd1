"""Consistency of an object's attributes over time: tracks, sightings and scenes."""

from .consistency import Check, Consistency, Interpolate

__all__ = ["Check", "Consistency", "Interpolate"]
