"""The shadow engine: many models near what the hardware can do."""
