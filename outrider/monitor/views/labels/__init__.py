"""Labels: the queue, estimates and proposals of assertions.

May import service.
"""
