"""Adapters of one base in, one executor mixing them out.

May import asks, executor.
"""
