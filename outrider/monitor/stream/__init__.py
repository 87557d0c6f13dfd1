"""The stream: journal blocks in, units with their stored answers out.

May import settings.
"""
