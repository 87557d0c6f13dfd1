"""Metrics of the trainer for Prometheus, read from committed rows.

Exact across crashes and restarts.
"""

import logging
import threading
from itertools import product

from sqlalchemy import Connection, Engine, and_, case, exists, func, select
from sqlalchemy.exc import OperationalError

from outrider.dataops.improvement.shadow_tests import running
from outrider.dataops.state.tables import (
    DatasetVersion,
    GateVerdict,
    Incident,
    Job,
    Label,
    LabelRequest,
    ModelVersion,
    Outbox,
    Quarantine,
    ShadowTest,
    SuiteOutcome,
    table_of,
)
from outrider.monitor.metrics.catalogue import OTHER
from outrider.monitor.metrics.registry import Metrics

log = logging.getLogger(__name__)
_ROLES = ("champion", "challenger")
_STATUSES = ("passed", "failed", "skipped", "error")
_LEVELS = ("info", "warning", "critical")


class LoopMetrics:
    """Metrics of the improvement loop.

    :meth:`observe` brings them up to the database.

    Counters follow counts of rows, which only grow, so a process that starts again goes on where it was.
    """

    def __init__(self, metrics: Metrics, engine: Engine) -> None:
        self._metrics = metrics
        self._engine = engine
        self._known: dict[tuple[str, ...], int] = {}
        self._versions_us = 0
        self._jobs_us = 0
        self._suite_models: set[str] = set()

    def observe(self) -> None:
        """Read the changed rows."""
        with self._engine.connect() as connection:
            self._jobs(connection)
            self._verdicts(connection)
            self._shadow_tests(connection)
            self._suites(connection)
            self._datasets(connection)
            self._labels(connection)
            self._incidents(connection)
            self._outbox(connection)

    def observe_until(self, stop: threading.Event, *, every_s: float = 2.0) -> None:
        """Observe until ``stop`` is set; a busy database is tried again."""
        while True:
            try:
                self.observe()
            except OperationalError as error:
                log.warning("metrics of the loop: %s", error)
            if stop.wait(every_s):
                return

    def _advance(self, name: str, value: int, **labels: str) -> None:
        key = (name, *labels.values())
        step = value - self._known.get(key, 0)
        if step > 0:
            self._metrics.counter(name).labels(**labels).inc(step)
            self._known[key] = value

    def _jobs(self, connection: Connection) -> None:
        job = table_of(Job)
        ended = job.c.kind == "retrain", job.c.status.in_(("done", "refused", "failed"))
        query = select(job.c.model, job.c.status, func.count().label("jobs")).where(*ended)
        for row in connection.execute(query.group_by(job.c.model, job.c.status)):
            self._advance("outrider_retrains_total", row.jobs, model=row.model, status=row.status)
        fresh = select(job).where(*ended, job.c.finished_us > self._jobs_us).order_by(job.c.finished_us)
        for row in connection.execute(fresh):
            for stage, seconds in row.result.get("seconds", {}).items():
                child = self._metrics.histogram("outrider_retrain_seconds").labels(
                    model=row.model, stage=stage
                )
                child.observe(float(seconds))
            self._jobs_us = row.finished_us

    def _verdicts(self, connection: Connection) -> None:
        verdict = table_of(GateVerdict)
        query = select(verdict.c.model, verdict.c.promoted, func.count().label("verdicts"))
        for row in connection.execute(query.group_by(verdict.c.model, verdict.c.promoted)):
            result = "promoted" if row.promoted else "refused"
            self._advance("outrider_gate_verdicts_total", row.verdicts, model=row.model, result=result)

    def _shadow_tests(self, connection: Connection) -> None:
        test = table_of(ShadowTest)
        query = select(test.c.model, test.c.recommendation, func.count().label("tests")).where(
            test.c.ended_us.is_not(None)
        )
        for row in connection.execute(query.group_by(test.c.model, test.c.recommendation)):
            labels = {"model": row.model, "recommendation": row.recommendation}
            self._advance("outrider_shadow_tests_total", row.tests, **labels)
        gauge = self._metrics.gauge("outrider_shadow_agreement_ratio")
        gauge.clear()
        for trial in running(connection):
            first = next(iter(trial.findings.get("agreement", [])), None)
            if first is None:
                continue
            beyond = first["beyond"]
            figures = {"raw": first["raw"]["value"], "beyond": beyond["value"]}
            for figure, value in (figures | {"low": beyond["low"], "high": beyond["high"]}).items():
                gauge.labels(model=trial.model, version=trial.version, figure=figure).set(value)

    def _suites(self, connection: Connection) -> None:
        outcome, version = table_of(SuiteOutcome), table_of(ModelVersion)
        same = and_(version.c.model == outcome.c.model, version.c.version == outcome.c.version)
        query = (
            select(
                outcome.c.model, version.c.status.label("role"), outcome.c.status, func.count().label("tests")
            )
            .join(version, same)
            .where(version.c.status.in_(_ROLES))
            .group_by(outcome.c.model, version.c.status, outcome.c.status)
        )
        found = {(row.model, row.role, row.status): row.tests for row in connection.execute(query)}
        self._suite_models |= {model for model, _, _ in found}
        gauge = self._metrics.gauge("outrider_suite_tests")
        for key in product(self._suite_models, _ROLES, _STATUSES):  # a challenger that has gone has none
            model, role, status = key
            gauge.labels(model=model, role=role, status=status).set(found.get(key, 0))

    def _datasets(self, connection: Connection) -> None:
        version, refused = table_of(DatasetVersion), table_of(Quarantine)
        fresh = select(version).where(version.c.created_us > self._versions_us).order_by(version.c.created_us)
        for row in connection.execute(fresh):
            files = row.manifest.get("files", [])
            rows = sum(int(file["rows"]) for file in files if file.get("added") == row.number)
            self._metrics.counter("outrider_dataset_versions_total").labels(model=row.model).inc()
            self._metrics.counter("outrider_dataset_rows_total").labels(model=row.model).inc(rows)
            self._versions_us = row.created_us
        owner = (
            select(version.c.model).where(version.c.dataset == refused.c.dataset).limit(1).scalar_subquery()
        )
        query = select(owner.label("model"), func.count().label("rows")).group_by("model")
        for row in connection.execute(query):
            self._advance("outrider_quarantined_rows_total", row.rows, model=row.model or OTHER)

    def _labels(self, connection: Connection) -> None:
        request, label = table_of(LabelRequest), table_of(Label)
        same = and_(label.c.model == request.c.model, label.c.record_id == request.c.record_id)
        waits = case((exists().where(same), 0), else_=1)
        query = select(request.c.model, func.sum(waits).label("waiting")).group_by(request.c.model)
        found = {row.model: row.waiting for row in connection.execute(query)}
        for model, waiting in (dict.fromkeys(self._metrics.models, 0) | found).items():
            self._metrics.gauge("outrider_label_queue_records").labels(model=model).set(waiting)

    def _incidents(self, connection: Connection) -> None:
        incident = table_of(Incident)
        current = case((incident.c.status.in_(("open", "acknowledged")), 1), else_=0)
        query = select(
            incident.c.model,
            incident.c.level,
            func.count().label("all"),
            func.sum(current).label("open"),
        )
        found = dict.fromkeys(product(self._metrics.models, _LEVELS), 0)
        for row in connection.execute(query.group_by(incident.c.model, incident.c.level)).mappings():
            labels = {"model": row["model"] or OTHER, "level": row["level"]}
            self._advance("outrider_incidents_total", row["all"], **labels)
            found[row["model"], row["level"]] = row["open"]
        for (model, level), count in found.items():
            self._metrics.gauge("outrider_incidents_open").labels(model=model, level=level).set(count)

    def _outbox(self, connection: Connection) -> None:
        outbox = table_of(Outbox)
        again = case((outbox.c.attempts > 1, outbox.c.attempts - 1), else_=0)
        row = connection.execute(
            select(
                func.count().label("events"),
                func.count(outbox.c.delivered_us).label("delivered"),
                func.coalesce(func.sum(again), 0).label("again"),
            )
        ).one()
        self._metrics.gauge("outrider_outbox_pending").set(row.events - row.delivered)
        self._advance("outrider_webhook_deliveries_total", row.delivered, outcome="delivered")
        self._advance("outrider_webhook_deliveries_total", row.again, outcome="retry")
