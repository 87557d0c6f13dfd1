"""Protocols of senders: one request in, columns of records out."""
