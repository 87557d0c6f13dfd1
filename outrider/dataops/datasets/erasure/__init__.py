"""Erasure of rows from dataset versions, step by step."""
