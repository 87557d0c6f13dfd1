"""OpenTelemetry: what is read of spans and logs, what they become, and the real exporter."""
