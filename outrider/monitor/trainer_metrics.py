"""What the trainer process counts."""

import time
from typing import Literal, TypeAlias

from sqlalchemy import Engine

from outrider.dataops import labels, outbox
from outrider.dataops.jobs import JobRow

from .metrics.registry import Metrics

Outcome: TypeAlias = Literal["delivered", "retry", "failed"]
STAGES = ("dataset", "train", "gate")
EVERY_S = 1.0


class TrainerMetrics:
    """Jobs, verdicts, dataset rows, deliveries and what is still to be done."""

    def __init__(self, metrics: Metrics, engine: Engine) -> None:
        self.metrics = metrics
        self._engine = engine
        self._observed = 0.0

    def ended(self, job: JobRow) -> None:
        """Count a job that is closed."""
        counter, result = self.metrics.counter, job.result
        if "added_rows" in result:
            added, refused = int(result["added_rows"]), int(result["quarantined_rows"])
            counter("outrider_dataset_versions_total").labels(model=job.model).inc(1 if added else 0)
            counter("outrider_dataset_rows_total").labels(model=job.model).inc(added)
            counter("outrider_quarantined_rows_total").labels(model=job.model).inc(refused)
        if job.kind != "retrain":
            return
        counter("outrider_retrains_total").labels(model=job.model, status=job.status).inc()
        seconds = self.metrics.histogram("outrider_retrain_seconds")
        for stage in STAGES:
            if stage in result.get("seconds", {}):
                seconds.labels(model=job.model, stage=stage).observe(result["seconds"][stage])
        if "passed" in result:
            verdict = "promoted" if result["passed"] else "refused"
            counter("outrider_gate_verdicts_total").labels(model=job.model, result=verdict).inc()

    def attempted(self, outcome: Outcome) -> None:
        """Count an attempt to deliver a webhook."""
        self.metrics.counter("outrider_webhook_deliveries_total").labels(outcome=outcome).inc()

    def observe(self) -> None:
        """Set the gauges, at most once a second."""
        now = time.monotonic()
        if now - self._observed < EVERY_S:
            return
        self._observed = now
        with self._engine.connect() as connection:
            self.metrics.gauge("outrider_outbox_pending").set(outbox.pending(connection))
            waiting = labels.open_counts(connection)
        for model, records in waiting.items():
            self.metrics.gauge("outrider_label_queue_records").labels(model=model).set(records)
