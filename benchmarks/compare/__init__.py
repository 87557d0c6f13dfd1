"""Comparisons: what they take beside the models, and how soon they say same."""
