"""Memory of the service: journal, datasets, labels, lineage, models, jobs, outbox."""
