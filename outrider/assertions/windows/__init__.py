"""Records of one entity or group across batches: arrivals, order and state."""
