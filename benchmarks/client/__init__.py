"""What the client costs the service it runs in."""
