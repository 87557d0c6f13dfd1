"""Settings: a person's configuration in, checked values and reloads out.

May import no other room.
"""
