"""Dashboards for Grafana and Prometheus, generated from the metric catalogue."""
