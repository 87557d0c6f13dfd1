"""Intakes by kind of sender: a request into columns of records."""
