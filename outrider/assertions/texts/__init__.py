"""Texts: their words, their facts, and the syntax of source code."""
