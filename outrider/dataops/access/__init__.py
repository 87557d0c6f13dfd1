"""Access: keys, sessions, one-time links, log of writes, private files.

May import no other room.
"""
