"""Trainer's metrics from committed rows, exact across crashes and restarts."""

from itertools import product

from sqlalchemy import Connection, Engine

from outrider.dataops.alarms.stored_incidents import count_incidents, open_alarms
from outrider.dataops.alarms.version_mismatch import stated_versions
from outrider.dataops.datasets import quarantine
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.improvement import jobs, shadow_tests, watches
from outrider.dataops.improvement.suite_outcomes import count_by_role
from outrider.dataops.improvement.verdicts import count_verdicts
from outrider.dataops.labels.queue import count_waiting
from outrider.dataops.outbox import count_events
from outrider.dataops.state.database import now_us
from outrider.dataops.triggers.evaluation_log import count_outcomes
from outrider.monitor.metrics.catalogue import OTHER
from outrider.monitor.metrics.registry import Metrics

_ROLES = ("champion", "challenger")
_STATUSES = ("passed", "failed", "skipped", "error")
_LEVELS = ("info", "warning", "critical")


class LoopMetrics:
    """Metrics of the improvement loop.

    Counters follow counts of rows, which only grow, so a restart loses nothing.
    """

    def __init__(self, metrics: Metrics, engine: Engine) -> None:
        self._metrics = metrics
        self._engine = engine
        self._known: dict[tuple[str, ...], int] = {}
        self._versions_us = 0
        self._jobs_us = 0
        self._suite_models: set[str] = set()

    def observe(self) -> None:
        with self._engine.connect() as connection:
            self._jobs(connection)
            self._verdicts(connection)
            self._shadow_tests(connection)
            self._watches(connection)
            self._triggers(connection)
            self._suites(connection)
            self._datasets(connection)
            self._labels(connection)
            self._incidents(connection)
            self._outbox(connection)

    def _advance(self, name: str, value: int, **labels: str) -> None:
        key = (name, *labels.values())
        step = value - self._known.get(key, 0)
        if step > 0:
            self._metrics.counter(name).labels(**labels).inc(step)
            self._known[key] = value

    def _jobs(self, connection: Connection) -> None:
        for model, status, count in jobs.count_ended(connection, "retrain"):
            self._advance("outrider_retrains_total", count, model=model, status=status)
        for job in jobs.ended_since(connection, "retrain", self._jobs_us):
            for stage, seconds in job.result.get("seconds", {}).items():
                child = self._metrics.histogram("outrider_retrain_seconds").labels(
                    model=job.model, stage=stage
                )
                child.observe(float(seconds))
            assert job.finished_us is not None
            self._jobs_us = job.finished_us

    def _verdicts(self, connection: Connection) -> None:
        for model, result, count in count_verdicts(connection):
            self._advance("outrider_gate_verdicts_total", count, model=model, result=result)

    def _shadow_tests(self, connection: Connection) -> None:
        for model, recommendation, count in shadow_tests.count_ended(connection):
            self._advance("outrider_shadow_tests_total", count, model=model, recommendation=recommendation)
        gauge = self._metrics.gauge("outrider_shadow_agreement_ratio")
        gauge.clear()
        for trial in shadow_tests.running(connection):
            first = next(iter(trial.findings.get("agreement", [])), None)
            if first is None:
                continue
            beyond = first["beyond"]
            figures = {"raw": first["raw"]["value"], "beyond": beyond["value"]}
            for figure, value in (figures | {"low": beyond["low"], "high": beyond["high"]}).items():
                gauge.labels(model=trial.model, version=trial.version, figure=figure).set(value)

    def _watches(self, connection: Connection) -> None:
        for model, outcome, count in watches.count_ended(connection):
            self._advance("outrider_watches_total", count, model=model, outcome=outcome)
        for model in self._metrics.models:
            stated = stated_versions(connection, model, now_us=now_us())
            share = 0.0 if stated is None else stated.share
            self._metrics.gauge("outrider_version_mismatch_ratio").labels(model=model).set(share)

    def _triggers(self, connection: Connection) -> None:
        for model, trigger, counts in count_outcomes(connection):
            for outcome, count in counts.items():
                name = "outrider_trigger_evaluations_total"
                self._advance(name, count, model=model, trigger=trigger, outcome=outcome)

    def _suites(self, connection: Connection) -> None:
        found = count_by_role(connection)
        self._suite_models |= {model for model, _, _ in found}
        gauge = self._metrics.gauge("outrider_suite_tests")
        for key in product(self._suite_models, _ROLES, _STATUSES):  # a challenger that has gone has none
            model, role, status = key
            gauge.labels(model=model, role=role, status=status).set(found.get(key, 0))

    def _datasets(self, connection: Connection) -> None:
        for version in datasets.made_since(connection, self._versions_us):
            self._metrics.counter("outrider_dataset_versions_total").labels(model=version.model).inc()
            self._metrics.counter("outrider_dataset_rows_total").labels(model=version.model).inc(
                version.added
            )
            self._versions_us = version.created_us
        for model, count in quarantine.count_quarantined(connection):
            self._advance("outrider_quarantined_rows_total", count, model=model or OTHER)

    def _labels(self, connection: Connection) -> None:
        found = dict.fromkeys(self._metrics.models, 0) | count_waiting(connection)
        for model, waiting in found.items():
            self._metrics.gauge("outrider_label_queue_records").labels(model=model).set(waiting)

    def _incidents(self, connection: Connection) -> None:
        found = dict.fromkeys(product(self._metrics.models, _LEVELS), 0)
        for model, level, count, current in count_incidents(connection):
            self._advance("outrider_incidents_total", count, model=model or OTHER, level=level)
            found[model, level] = current
        for (model, level), current in found.items():
            self._metrics.gauge("outrider_incidents_open").labels(model=model, level=level).set(current)
        alarm = self._metrics.gauge("outrider_alarm")
        alarm.clear()
        for model, kind, level, assertion in open_alarms(connection):
            alarm.labels(model=model or OTHER, kind=kind, level=level, assertion=assertion).set(1)

    def _outbox(self, connection: Connection) -> None:
        events, delivered, again = count_events(connection)
        self._metrics.gauge("outrider_outbox_pending").set(events - delivered)
        self._advance("outrider_webhook_deliveries_total", delivered, outcome="delivered")
        self._advance("outrider_webhook_deliveries_total", again, outcome="retry")
