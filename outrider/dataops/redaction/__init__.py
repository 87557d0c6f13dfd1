"""Redaction: keyed placeholders in place of personal data and secrets.

May import payloads.
"""
