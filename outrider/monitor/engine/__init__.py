"""Shadow engine: models of one trunk group on one device.

Near the limits of the hardware.
"""
