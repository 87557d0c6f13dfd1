"""Outcomes of behavioral tests, newest per test and model version."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, and_, case, func, select
from sqlalchemy.dialects.sqlite import insert

from outrider.behavioral_tests import Outcome
from outrider.dataops.models.registry import IN_SERVICE
from outrider.dataops.state.improvement_tables import ModelVersion
from outrider.dataops.state.tables import SuiteOutcome, table_of

Source = Literal["gate", "registered", "cli", "pytest"]
_OUTCOME, _VERSION = table_of(SuiteOutcome), table_of(ModelVersion)
_KEY = ("model", "version", "suite", "test")


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """Stored outcome of one test for one version, without examples."""

    version: str
    suite: str
    test: str
    revision: str
    kind: str
    capability: str
    description: str
    status: str
    cases: int
    failures: int
    not_applicable: int
    tolerance: float
    rate: float
    low: float
    high: float
    measures: tuple[dict[str, Any], ...]
    source: str
    at_us: int


def keep(
    connection: Connection,
    model: str,
    version: str,
    outcomes: Iterable[Outcome],
    *,
    source: Source,
    now_us: int,
) -> None:
    """Replace the tests' outcomes; one without an answer of the model replaces none."""
    for outcome in outcomes:
        if outcome.is_unanswered:
            continue
        row = {
            "model": model,
            "version": version,
            "suite": outcome.suite,
            "test": outcome.name,
            **{name: getattr(outcome, name) for name in _SAME},
            "outcome": outcome.to_dict(),
            "source": source,
            "at_us": now_us,
            "passed_us": now_us if outcome.status == "passed" else None,
        }
        query = insert(_OUTCOME).values(row)
        changed: dict[str, Any] = {name: query.excluded[name] for name in row if name not in _KEY}
        changed["passed_us"] = func.coalesce(query.excluded["passed_us"], _OUTCOME.c.passed_us)
        connection.execute(query.on_conflict_do_update(index_elements=_KEY, set_=changed))


_SAME = (
    "revision", "kind", "capability", "description", "status", "cases", "failures", "not_applicable",
    "tolerance", "rate", "low", "high",
)  # fmt: skip


def revisions(connection: Connection, model: str, version: str) -> dict[tuple[str, str], str]:
    query = select(_OUTCOME.c.suite, _OUTCOME.c.test, _OUTCOME.c.revision).where(
        _OUTCOME.c.model == model, _OUTCOME.c.version == version
    )
    return {(row.suite, row.test): row.revision for row in connection.execute(query)}


def tested_versions(connection: Connection, model: str) -> dict[str, int]:
    query = (
        select(_OUTCOME.c.version, func.max(_OUTCOME.c.at_us).label("at_us"))
        .where(_OUTCOME.c.model == model)
        .group_by(_OUTCOME.c.version)
    )
    return {row.version: row.at_us for row in connection.execute(query)}


def count_by_role(connection: Connection) -> dict[tuple[str, str, str], int]:
    same = and_(_VERSION.c.model == _OUTCOME.c.model, _VERSION.c.version == _OUTCOME.c.version)
    by = _OUTCOME.c.model, _VERSION.c.status.label("role"), _OUTCOME.c.status
    query = (
        select(*by, func.count().label("tests"))
        .join(_VERSION, same)
        .where(_VERSION.c.status.in_(IN_SERVICE))
        .group_by(_OUTCOME.c.model, _VERSION.c.status, _OUTCOME.c.status)
    )
    return {(row.model, row.role, row.status): row.tests for row in connection.execute(query)}


def list_outcomes(
    connection: Connection, model: str, versions: Collection[str] | None = None
) -> list[OutcomeRow]:
    plain = [_OUTCOME.c[name] for name in ("version", "suite", "test", *_SAME, "source", "at_us")]
    # Figures belong to rules of a whole test, which is one case; the JSON of all others, which is long with
    # examples, is not read.
    figures = case((_OUTCOME.c.cases <= 1, _OUTCOME.c.outcome["measures"])).label("measures")
    query = (
        select(*plain, figures)
        .where(_OUTCOME.c.model == model)
        .order_by(_OUTCOME.c.version, _OUTCOME.c.suite, _OUTCOME.c.test)
    )
    if versions is not None:
        query = query.where(_OUTCOME.c.version.in_(versions))
    return [
        OutcomeRow(**{**row._mapping, "measures": tuple(row.measures or ())})
        for row in connection.execute(query)
    ]


def read_outcome(
    connection: Connection, model: str, version: str, suite: str, test: str
) -> dict[str, Any] | None:
    query = select(_OUTCOME.c.outcome, _OUTCOME.c.source, _OUTCOME.c.at_us).where(
        _OUTCOME.c.model == model,
        _OUTCOME.c.version == version,
        _OUTCOME.c.suite == suite,
        _OUTCOME.c.test == test,
    )
    row = connection.execute(query).first()
    return None if row is None else {**row.outcome, "source": row.source, "at_us": row.at_us}


def find_key(connection: Connection, model: str, path: str) -> tuple[str, str, str] | None:
    """Version, suite and test of the slash-joined ``path``: names may hold slashes themselves."""
    joined = _OUTCOME.c.version + "/" + _OUTCOME.c.suite + "/" + _OUTCOME.c.test
    query = select(_OUTCOME.c.version, _OUTCOME.c.suite, _OUTCOME.c.test)
    row = connection.execute(query.where(_OUTCOME.c.model == model, joined == path)).first()
    return None if row is None else (row.version, row.suite, row.test)
