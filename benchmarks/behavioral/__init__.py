"""What asking the model new questions costs."""
