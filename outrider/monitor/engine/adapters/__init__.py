"""Adapters of one base in, one executor mixing them out."""
