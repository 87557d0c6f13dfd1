"""Datasets: what the gate and the store add to the library and the format below them."""
