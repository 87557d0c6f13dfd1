"""The trainer: jobs in, datasets, candidates, evidence and decisions out.

May import settings, metrics, http, stream, process, engine, registry.

Each job is a process (`job_processes` starts and holds it to its limits, `job_process` is one), so that the
trainer loads neither torch nor Great Expectations; a job continues behind its last committed stage. Tests of
a champion without outcomes run in a child that ends (`champion_suites_job`). Promotion or refusal and outbox
are one transaction; `webhooks` delivers, signed, at least once.
"""
