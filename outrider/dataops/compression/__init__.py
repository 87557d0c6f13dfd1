"""Compression of a model into smaller and faster variants.

Made, measured beside the champion, and judged before anybody relies on them.
"""
