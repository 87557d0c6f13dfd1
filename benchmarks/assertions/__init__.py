"""Model assertions on real and generated data."""
