"""Intervals for rates, losses and differences, of samples and of sequences."""
