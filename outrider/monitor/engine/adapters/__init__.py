"""Adapters of one base in, one mixing executor out."""
