"""Retrains, gate verdicts, dataset versions and lineage, as the page shows them; bounded SQL reads."""

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, func, select
from sqlalchemy.engine import Connection, Row

from outrider.dataops.tables import (
    DatasetRow,
    DatasetVersion,
    GateVerdict,
    Job,
    LineageEdge,
    ModelVersion,
    Quarantine,
)

MOST_NODES = 200
"""A lineage is cut after this many nodes."""

job = Job.__table__  # type: ignore[attr-defined]  # SQLModel adds it to table classes
verdict = GateVerdict.__table__  # type: ignore[attr-defined]  # as above
dataset = DatasetVersion.__table__  # type: ignore[attr-defined]  # as above
dataset_row = DatasetRow.__table__  # type: ignore[attr-defined]  # as above
edge = LineageEdge.__table__  # type: ignore[attr-defined]  # as above
version = ModelVersion.__table__  # type: ignore[attr-defined]  # as above
quarantine = Quarantine.__table__  # type: ignore[attr-defined]  # as above


@dataclass(frozen=True, slots=True)
class VerdictView:
    """What the gate decided."""

    id: str
    candidate: str
    champion: str
    promoted: bool
    reasons: tuple[str, ...]
    evidence: dict[str, Any]
    created_us: int


@dataclass(frozen=True, slots=True)
class JobView:
    """A retrain or dataset job."""

    id: str
    kind: str
    status: str
    stage: str
    params: dict[str, Any]
    result: dict[str, Any]
    attempts: int
    created_us: int
    started_us: int | None
    finished_us: int | None


@dataclass(frozen=True, slots=True)
class DatasetView:
    """A dataset version with its provenance in numbers."""

    name: str
    number: int
    parent: int | None
    digest: str
    rows: int
    created_us: int
    manifest: dict[str, Any]
    by_assertion: tuple[tuple[str, int], ...]
    by_source: tuple[tuple[str, int], ...]
    by_part: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class QuarantineView:
    """A row that a dataset refused."""

    dataset: str
    record_id: str
    reasons: str
    at_us: int


@dataclass(frozen=True, slots=True)
class LineageNode:
    """Something that went into the champion, and what went into that."""

    kind: str
    name: str
    roles: tuple[str, ...]
    """In what it was used for; empty at the root."""
    title: str
    digest: str
    facts: tuple[tuple[str, str], ...]
    created_us: int | None
    verdict: VerdictView | None
    parents: tuple["LineageNode", ...]
    repeated: bool
    """True where it was shown above: its parents are not listed again."""


def list_verdicts(engine: Engine, model: str, *, limit: int = 50) -> tuple[VerdictView, ...]:
    """Newest gate verdicts."""
    query = select(verdict).where(verdict.c.model == model).order_by(verdict.c.created_us.desc()).limit(limit)
    with engine.connect() as connection:
        return tuple(_verdict(row) for row in connection.execute(query))


def list_jobs(engine: Engine, model: str, *, limit: int = 50) -> tuple[JobView, ...]:
    """Newest jobs."""
    query = select(job).where(job.c.model == model).order_by(job.c.created_us.desc()).limit(limit)
    with engine.connect() as connection:
        return tuple(
            JobView(
                id=row.id,
                kind=row.kind,
                status=row.status,
                stage=row.stage,
                params=dict(row.params),
                result=dict(row.result),
                attempts=row.attempts,
                created_us=row.created_us,
                started_us=row.started_us,
                finished_us=row.finished_us,
            )
            for row in connection.execute(query)
        )


def list_datasets(engine: Engine, model: str, *, limit: int = 50) -> tuple[DatasetView, ...]:
    """Newest dataset versions."""
    query = select(dataset).where(dataset.c.model == model).order_by(dataset.c.created_us.desc()).limit(limit)
    with engine.connect() as connection:
        return tuple(_dataset(connection, row) for row in connection.execute(query).all())


def list_quarantine(engine: Engine, model: str, *, limit: int = 50) -> tuple[QuarantineView, ...]:
    """Newest rows that a dataset of this model refused."""
    names = select(dataset.c.dataset).where(dataset.c.model == model).distinct()
    query = (
        select(quarantine)
        .where(quarantine.c.dataset.in_(names))
        .order_by(quarantine.c.id.desc())
        .limit(limit)
    )
    with engine.connect() as connection:
        return tuple(
            QuarantineView(row.dataset, row.record_id, row.reasons, row.at_us)
            for row in connection.execute(query)
        )


def read_lineage(engine: Engine, model: str) -> LineageNode | None:
    """What the current champion was made from; None when the model has no champion."""
    with engine.connect() as connection:
        champion = connection.scalar(
            select(version.c.version).where(version.c.model == model, version.c.status == "champion")
        )
        if champion is None:
            return None
        known = connection.execute(
            select(edge.c.child)
            .where(
                edge.c.child_kind == "model",
                edge.c.child.in_([f"{model}{mark}{champion}" for mark in "/:@"]),
            )
            .limit(1)
        ).first()
        name = known.child if known else f"{model}/{champion}"
        return _node(connection, "model", name, (), {})


def _node(
    connection: Connection, kind: str, name: str, roles: tuple[str, ...], seen: dict[tuple[str, str], bool]
) -> LineageNode:
    repeated = (kind, name) in seen
    seen[kind, name] = True
    parents: dict[tuple[str, str], list[str]] = {}
    if not repeated and len(seen) < MOST_NODES:
        for row in connection.execute(
            select(edge)
            .where(edge.c.child_kind == kind, edge.c.child == name)
            .order_by(edge.c.parent_kind.desc(), edge.c.parent)
            .limit(20)
        ).all():
            parents.setdefault((row.parent_kind, row.parent), []).append(row.role)
    describe = {"model": _describe_model, "dataset": _describe_dataset, "job": _describe_job}
    title, digest, facts, created_us, decided = describe.get(kind, _describe_other)(connection, name)
    return LineageNode(
        kind=kind,
        name=name,
        roles=roles,
        title=title,
        digest=digest,
        facts=facts,
        created_us=created_us,
        verdict=decided,
        parents=tuple(
            _node(connection, parent_kind, parent, tuple(used), seen)
            for (parent_kind, parent), used in parents.items()
        ),
        repeated=repeated,
    )


_Facts = tuple[str, str, tuple[tuple[str, str], ...], int | None, VerdictView | None]


def _describe_model(connection: Connection, name: str) -> _Facts:
    model, number = split_version(name)
    row = connection.execute(
        select(version).where(version.c.model == model, version.c.version == number)
    ).first()
    decided = connection.execute(
        select(verdict)
        .where(verdict.c.model == model, verdict.c.candidate == number)
        .order_by(verdict.c.created_us.desc())
        .limit(1)
    ).first()
    if row is None:
        return f"{model} version {number}", "", (), None, None
    facts = [("status", row.status)] + ([("note", row.note)] if row.note else [])
    digest = row.weights or row.digest
    return (
        f"{model} version {number}",
        digest,
        tuple(facts),
        row.created_us,
        _verdict(decided) if decided else None,
    )


def _describe_dataset(connection: Connection, name: str) -> _Facts:
    title, number = split_version(name)
    query = select(dataset).where(dataset.c.dataset == title)
    row = connection.execute(query.where(dataset.c.number == int(number))).first() if number.isdigit() else None
    if row is None:
        return name, "", (), None, None
    view = _dataset(connection, row)
    facts = [("rows", f"{view.rows:,}".replace(",", "\u2009"))]
    facts += [(f"from {assertion}", str(rows)) for assertion, rows in view.by_assertion[:6]]
    facts += [(f"labels: {source}", str(rows)) for source, rows in view.by_source[:4]]
    return f"{title} version {number}", view.digest, tuple(facts), view.created_us, None


def _describe_job(connection: Connection, name: str) -> _Facts:
    row = connection.execute(select(job).where(job.c.id == name)).first()
    if row is None:
        return name, "", (), None, None
    return f"{row.kind} job", "", (("status", row.status),), row.created_us, None


def _describe_other(_connection: Connection, name: str) -> _Facts:
    return name, "", (), None, None


def split_version(name: str) -> tuple[str, str]:
    """Name and version of ``name/version``.

    Examples
    --------
    >>> split_version("digits/2")
    ('digits', '2')
    """
    found = re.fullmatch(r"(.+)[/:@]([^/:@]+)", name)
    return (found[1], found[2]) if found else (name, "")


def _verdict(row: Row[Any]) -> VerdictView:
    return VerdictView(
        id=row.id,
        candidate=row.candidate,
        champion=row.champion,
        promoted=row.promoted,
        reasons=tuple(row.reasons),
        evidence=dict(row.evidence),
        created_us=row.created_us,
    )


def _dataset(connection: Connection, row: Row[Any]) -> DatasetView:
    mine = (dataset_row.c.dataset == row.dataset, dataset_row.c.number == row.number)

    def count(column: Any) -> tuple[tuple[str, int], ...]:
        query = select(column, func.count()).where(*mine, column.is_not(None)).group_by(column)
        return tuple(sorted(connection.execute(query).tuples(), key=lambda pair: -pair[1]))

    return DatasetView(
        name=row.dataset,
        number=row.number,
        parent=row.parent,
        digest=row.digest,
        rows=row.rows,
        created_us=row.created_us,
        manifest=dict(row.manifest),
        by_assertion=count(dataset_row.c.assertion),
        by_source=count(dataset_row.c.label_source),
        by_part=count(dataset_row.c.part),
    )
