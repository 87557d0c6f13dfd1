"""Kinds of models: how each is loaded, fed and read.

May import state.
"""
