"""Who may do what: keys, sessions and one-time links, the log of writes, files of the owner alone.

May import no other room.
"""
