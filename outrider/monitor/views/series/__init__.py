"""Series: figures over time by judged version.

May import service.
"""
