"""Cursors of the champion and its challengers: journal blocks in, commits out."""
