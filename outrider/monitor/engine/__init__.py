"""The shadow engine: runs the models of one trunk group on one device, near what the hardware can do."""
