"""The trainer: jobs in, datasets, candidates, evidence and decisions out.

May import settings, metrics, http, stream, process, engine, registry.

It loads torch and Great Expectations with its first job; a job continues behind its last committed stage.
Tests of a champion without outcomes run in a child that ends (`champion_suites_job`). Promotion or refusal
and outbox are one transaction; `webhooks` delivers, signed, at least once.
"""
