"""Access: keys, sessions, the log, and the pages to log in and out.

May import service.
"""
