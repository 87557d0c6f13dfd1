"""What must hold when machines fail: power cuts, kills, full disks, flipped bits, hostile requests."""
