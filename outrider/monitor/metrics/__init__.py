"""The metric catalogue, the registry built from it, and the channel between processes."""
