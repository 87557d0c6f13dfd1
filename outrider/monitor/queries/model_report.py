"""A model in one place: its champion, its challengers with their shadow tests, flags, suites and labels."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from outrider.assertions.comparison import DELTA_EDGES
from outrider.dataops.improvement import shadow_tests
from outrider.dataops.improvement.shadow_tests import Trial
from outrider.dataops.ledger.counters import counts_by_slot
from outrider.dataops.models import registry as models
from outrider.dataops.state.tables import SuiteOutcome, table_of
from outrider.monitor.http.common import iso, rate_json, timed
from outrider.monitor.stream.answer_costs import read_costs

from .overview import read_overview

_OUTCOME = table_of(SuiteOutcome)


def trial_json(trial: Trial) -> dict[str, Any]:
    """A shadow test as the API shows it."""
    found = trial.findings
    progress: Mapping[str, Any] = found.get("progress", {})
    comparison: Mapping[str, Any] = progress.get("comparison", {})
    return {
        "version": trial.version,
        "champion": trial.champion,
        "began": iso(trial.began_us),
        "ends": iso(trial.ends_us),
        "ends_rows": trial.ends_rows,
        "ended": iso(trial.ended_us),
        "ended_because": found.get("ended_because"),
        "recommendation": trial.recommendation or None,
        "advice": found.get("advice", "undecided"),
        "reasons": found.get("reasons", []),
        "records": found.get("records", 0),
        "required": found.get("required"),
        "agreement": found.get("agreement", []),
        "score_distances": {
            "edges": DELTA_EDGES.tolist(),
            "challenger": comparison.get("apart", []),
            "noise": comparison.get("noise_apart", []),
        },
        "labels": found.get("labels"),
        "flags": found.get("flags"),
        "regressions": found.get("regressions", []),
        "cost": found.get("cost"),
        "smaller": found.get("smaller"),
        "examples": progress.get("examples", []),
    }


def report_json(engine: Engine, model: str, *, now_us: int) -> dict[str, Any]:
    """Everything about a model that a person asks before changing its champion."""
    with engine.connect() as connection:
        versions = models.all_versions(connection, model)
        champion = models.champion(connection, model)
        trials = [trial_json(trial) for trial in shadow_tests.newest(connection, model)]
        suites = _suites(connection, model)
        judged = _judged(connection, model)
        costs = read_costs(connection, model)
    view = read_overview(engine, model, now_us=now_us)
    return {
        "model": model,
        "champion": None if champion is None else champion.version,
        "versions": [
            {
                "version": found.version,
                "status": found.status,
                "note": found.note,
                "suites": suites.get(found.version, {}),
                "cost_us": cost.p50_us if (cost := costs.get(_slot(found))) else None,
            }
            | judged.get(_slot(found), {})
            | timed({"created_us": found.created_us, "changed_us": found.changed_us})
            for found in versions
        ],
        "records": view.records,
        "flagged": view.flagged,
        "accuracy": rate_json(view.accuracy_of_all),
        "assertions": [
            {
                "name": each.name,
                "level": each.level,
                "flags": dict(each.flags),
                "per_1000": dict(each.per_1000),
            }
            for each in view.assertions
        ],
        "shadow_tests": trials,
    }


def _slot(found: models.Model) -> str:
    return "champion" if found.status == "champion" else found.version


def _suites(connection: Connection, model: str) -> dict[str, dict[str, int]]:
    """Behavioral tests by version and newest outcome."""
    query = select(_OUTCOME.c.version, _OUTCOME.c.status, func.count().label("tests")).where(
        _OUTCOME.c.model == model
    )
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(query.group_by(_OUTCOME.c.version, _OUTCOME.c.status)):
        found.setdefault(row.version, {})[row.status] = row.tests
    return found


def _judged(connection: Connection, model: str) -> dict[str, dict[str, Any]]:
    """Judged records and flags per 1,000, by slot."""
    counts = counts_by_slot(connection, model)
    return {slot: _rates(names) for slot, names in counts.items() if names.get("records")}


def _rates(names: Mapping[str, int]) -> dict[str, Any]:
    flags = sum(value for name, value in names.items() if name.startswith("flags:"))
    return {"judged": names["records"], "flags_per_1000": 1000 * flags / names["records"]}


def rows_of(trial: Mapping[str, Any], *, everything: str = "all records") -> Sequence[dict[str, Any]]:
    """Agreement rows of a test as tables show them."""
    return [row | {"slice": row["slice"] or everything} for row in trial["agreement"]]
