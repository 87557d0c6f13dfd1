"""Traces and logs of OpenTelemetry: one record per call of a language model."""
