"""Traces and logs of OpenTelemetry.

One record per call of a language model.
"""
