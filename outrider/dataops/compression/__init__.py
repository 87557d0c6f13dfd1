"""Smaller and faster twins of a model: made, measured beside it, and judged before anybody relies on them."""
