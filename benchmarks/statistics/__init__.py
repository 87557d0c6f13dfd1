"""Simulations of the statistics: estimates against a truth that is known, with seeds and intervals."""
