"""Stages of one unit: records, predictions and views in, verdicts and rows out."""
