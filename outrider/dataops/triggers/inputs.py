"""Inputs of the triggers of retraining, read from the database."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, and_, func, or_, select

from outrider.dataops.datasets.label_fates import LabelScope, label_fates
from outrider.dataops.improvement.jobs import KIND, ROLLING, is_busy
from outrider.dataops.ledger.cube import FLAGS, RECORDS, flags_of
from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.models import registry as models
from outrider.dataops.state.improvement_tables import ChampionChange, DatasetVersion, Job, LineageEdge
from outrider.dataops.state.job_states import ENDED
from outrider.dataops.state.tables import Incident, SuiteOutcome, table_of

from .decision import DAY_US, FAILED, RunHistory, failed_in_row
from .signals import DatasetCorrections, Figures, FlagRateRule, OpenIncident, Regression

MOST_INCIDENTS = 1_000
MOST_RUNS = 100
LEVELS = ("info", "warning", "critical")
_JOB, _CHANGE = table_of(Job), table_of(ChampionChange)
_INCIDENT = table_of(Incident)
_EDGE, _VERSION, _OUTCOME = table_of(LineageEdge), table_of(DatasetVersion), table_of(SuiteOutcome)
_TRIGGER, _ANSWERS = _JOB.c.params["trigger"].as_string(), _JOB.c.params["job"].as_string()


def read_history(connection: Connection, model: str, *, now_us: int) -> RunHistory:
    """Retrainings of a model so far, with automatic ones apart; comparisons of all versions train
    nothing and do not count."""
    own = _JOB.c.model == model, _JOB.c.kind == KIND, _TRIGGER.is_distinct_from(ROLLING)
    columns = _JOB.c.id, _JOB.c.status, _JOB.c.created_us, _TRIGGER.label("trigger"), _ANSWERS.label("job")
    newest = select(*columns).where(*own).order_by(_JOB.c.created_us.desc(), _JOB.c.id).limit(MOST_RUNS)
    runs = connection.execute(newest).all()
    made = [run.created_us for run in runs if run.trigger is not None]
    if len(runs) == MOST_RUNS:  # more than these may count
        automatic = select(_JOB.c.created_us).where(*own, _TRIGGER.is_not(None))
        last = connection.scalars(automatic.order_by(_JOB.c.created_us.desc()).limit(1)).all()
        made = list(connection.scalars(automatic.where(_JOB.c.created_us > now_us - DAY_US))) or list(last)
    changed_us = 0
    if any(run.status in FAILED for run in runs):
        changed = select(func.max(_CHANGE.c.at_us)).where(_CHANGE.c.model == model)
        changed_us = connection.scalar(changed) or 0
    return RunHistory(
        is_open=is_busy(connection, model),
        last_us=max(made, default=None),
        today=sum(at > now_us - DAY_US for at in made),
        failed=failed_in_row(_outcomes(runs, since_us=changed_us)),
        newest_us=runs[0].created_us if runs else None,
    )


def _outcomes(runs: Sequence[Any], *, since_us: int) -> list[str]:
    """Ends of automatic runs since a time and the last manual retraining, newest first; a run with a
    candidate made elsewhere ends as that candidate does."""
    answered: dict[str, str] = {}
    found = []
    for run in runs:
        if run.created_us <= since_us or (run.trigger is None and run.job is None):
            break
        if run.trigger is None:
            answered.setdefault(run.job, run.status)
        elif run.status in ENDED:
            found.append(answered.get(run.id, run.status))
    return found


def read_flag_rates(
    connection: Connection, model: str, rules: Sequence[FlagRateRule], *, now_us: int
) -> dict[str, Figures]:
    minutes = max((rule.history for rule in rules), default=0)
    since_us = minute_of(now_us) - (minutes - 1) * MINUTE_US
    until_us = now_us + 1
    seen = RECORDS.query(
        model, "minute_us", sums=("records", "entities"), since_us=since_us, until_us=until_us
    )
    records, entities = np.zeros((2, minutes))
    for at_us, *counts in connection.execute(seen):
        records[(at_us - since_us) // MINUTE_US], entities[(at_us - since_us) // MINUTE_US] = counts
    found = {}
    for rule in rules:
        of = flags_of(rule.assertion)
        flagged = FLAGS.query(
            model, "minute_us", sums=("flags",), since_us=since_us, until_us=until_us, of=of
        )
        flags = np.zeros(minutes)
        for at_us, count in connection.execute(flagged):
            flags[(at_us - since_us) // MINUTE_US] = count
        own = slice(-rule.history, None)
        found[rule.assertion] = Figures.of(rule, flags[own], records[own], entities[own])
    return found


def read_regressions(connection: Connection, model: str) -> list[Regression]:
    champion = models.champion(connection, model)
    if champion is None:
        return []
    query = select(_OUTCOME.c.suite, _OUTCOME.c.test, _OUTCOME.c.passed_us, _OUTCOME.c.rate).where(
        _OUTCOME.c.model == model,
        _OUTCOME.c.version == champion.version,
        _OUTCOME.c.status == "failed",
        _OUTCOME.c.passed_us.is_not(None),
    )
    rows = connection.execute(query.order_by(_OUTCOME.c.suite, _OUTCOME.c.test))
    return [Regression(champion.version, row.suite, row.test, row.passed_us, row.rate) for row in rows]


def read_incidents(connection: Connection, model: str, level: str) -> list[OpenIncident]:
    """Open, unmuted incidents of a level or above, oldest first; those that propose to retrain count
    at any level, those that a sender or author must mend do not."""
    proposed = _INCIDENT.c.details["action"].as_string()
    query = select(_INCIDENT.c.id, _INCIDENT.c.level, _INCIDENT.c.assertion, _INCIDENT.c.opened_us).where(
        _INCIDENT.c.model == model,
        _INCIDENT.c.status.in_(("open", "acknowledged")),
        or_(_INCIDENT.c.level.in_(LEVELS[LEVELS.index(level) :]), proposed == "retrain"),
        func.coalesce(proposed, "").not_in(("check_sender", "mend_assertion")),
    )
    rows = connection.execute(query.order_by(_INCIDENT.c.opened_us, _INCIDENT.c.id).limit(MOST_INCIDENTS))
    return [OpenIncident(**row._mapping) for row in rows]


def read_corrections(connection: Connection, scope: LabelScope) -> DatasetCorrections:
    """Corrections since the dataset version that the champion learned from, committed or not."""
    champion = models.champion(connection, scope.model)
    base = None if champion is None else _learned_from(connection, champion.id, scope.dataset)
    if base is None:
        return DatasetCorrections("")
    later = _VERSION.c.dataset == scope.dataset, _VERSION.c.number > base
    rows = sum(
        _changed(manifest) for (manifest,) in connection.execute(select(_VERSION.c.manifest).where(*later))
    )
    fates = label_fates(scope).subquery()
    waiting = select(func.count()).where(fates.c.fate.in_(("corrected", "removed")))
    return DatasetCorrections(f"{scope.dataset}@{base}", rows + int(connection.scalar(waiting) or 0))


def _learned_from(connection: Connection, version: str, dataset: str) -> int | None:
    edge = and_(_EDGE.c.child_kind == "model", _EDGE.c.child == version, _EDGE.c.parent_kind == "dataset")
    named = [text.rpartition("@") for text in connection.scalars(select(_EDGE.c.parent).where(edge))]
    return max((int(n) for name, _, n in named if name == dataset and n.isdecimal()), default=None)


def _changed(manifest: dict[str, Any]) -> int:
    return int(manifest["changes"]["relabelled"] + manifest["changes"]["removed"])
