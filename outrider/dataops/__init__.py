"""What the service remembers: journal, records, datasets, labels, lineage, models, jobs and the outbox."""
