"""The server process: API, pages and intake behind one port.

May import every room.
"""
