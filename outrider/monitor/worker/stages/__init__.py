"""Stages of one unit: records and views in, verdicts out."""
