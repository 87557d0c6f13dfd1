"""What the live path costs production, and what it takes in."""
