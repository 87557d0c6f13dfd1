"""What is shown in Grafana and Prometheus, generated from the metric catalogue."""
