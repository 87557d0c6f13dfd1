"""Retrains, gate verdicts, dataset versions and lineage, for the page.

Bounded SQL reads.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, func, select
from sqlalchemy.engine import Connection, Row

from outrider.dataops.models.lineage import trace
from outrider.dataops.state.tables import DatasetRow, DatasetVersion, GateVerdict, Job, Quarantine, table_of
from outrider.errors import NotFound

job = table_of(Job)
verdict = table_of(GateVerdict)
dataset = table_of(DatasetVersion)
dataset_row = table_of(DatasetRow)
quarantine = table_of(Quarantine)


@dataclass(frozen=True, slots=True)
class VerdictView:
    """Verdict of the gate."""

    id: str
    candidate: str
    champion: str
    promoted: bool
    reasons: tuple[str, ...]
    evidence: dict[str, Any]
    created_us: int

    @property
    def failed_tests(self) -> list[tuple[str, str]]:
        """Behavioral tests that the candidate failed beyond tolerance.

        As (suite, test).
        """
        return [
            (each["suite"], each["test"])
            for each in self.evidence.get("suites", ())
            if "candidate" in each  # not in verdicts from before outcomes were kept
            and each["candidate"]["failures"] > each["tolerance"] * each["candidate"]["cases"]
        ]


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
    bytes: int
    created_us: int
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


def read_lineage(engine: Engine, model: str) -> dict[str, Any] | None:
    """Ancestors of the current champion, as a tree.

    None when the model has no champion.
    """
    with engine.connect() as connection:
        try:
            return trace(connection, model)
        except NotFound:
            return None


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
    files = row.manifest.get("files", [])
    added = [int(file["added"]) for file in files]  # provenance stands under the version that added a file
    mine = (dataset_row.c.dataset == row.dataset, dataset_row.c.number.in_(added))

    def count(column: Any) -> tuple[tuple[str, int], ...]:
        query = (
            select(column.label("names"), func.count().label("rows"))
            .where(*mine, column.is_not(None))
            .group_by(column)
        )
        tally: Counter[str] = Counter()
        for row in connection.execute(query):
            tally.update({name: row.rows for name in row.names.split(",") if name})
        return tuple(tally.most_common())

    return DatasetView(
        name=row.dataset,
        number=row.number,
        parent=row.parent,
        digest=row.digest,
        rows=row.rows,
        bytes=sum(int(file.get("bytes", 0)) for file in files),
        created_us=row.created_us,
        by_assertion=count(dataset_row.c.assertion),
        by_source=count(dataset_row.c.label_source),
        by_part=count(dataset_row.c.part),
    )
