"""Retrains, verdicts, datasets and lineage for pages, bounded SQL reads."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, func, select
from sqlalchemy.engine import Connection, Row

from outrider.dataops.datasets.label_account import LabelAccount
from outrider.dataops.improvement import jobs, verdicts
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.improvement.verdicts import VerdictRow
from outrider.dataops.models.lineage import trace
from outrider.dataops.state.improvement_tables import DatasetRow, DatasetVersion, Quarantine
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound

dataset = table_of(DatasetVersion)
dataset_row = table_of(DatasetRow)
quarantine = table_of(Quarantine)


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
    labels: LabelAccount | None = None
    """Where every label of the model went; None of an imported version."""
    expectations: int = 0
    """Expectations that it was validated by."""
    quarantined: int = 0
    warnings: tuple[dict[str, Any], ...] = ()
    """Expectations that it does not meet, without being refused."""
    has_docs: bool = False
    """True where its Data Docs are kept."""


@dataclass(frozen=True, slots=True)
class QuarantineView:
    """A row that a dataset refused."""

    dataset: str
    record_id: str
    reasons: str
    at_us: int


def list_verdicts(engine: Engine, model: str, *, limit: int = 50) -> list[VerdictRow]:
    """Newest gate verdicts."""
    with engine.connect() as connection:
        return verdicts.list_verdicts(connection, model, limit=limit)


def list_jobs(engine: Engine, model: str) -> list[JobRow]:
    """Newest jobs."""
    with engine.connect() as connection:
        return jobs.recent(connection, model=model)


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
    """Tree of the champion's ancestors; None without a champion."""
    with engine.connect() as connection:
        try:
            return trace(connection, model)
        except NotFound:
            return None


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

    validation = row.manifest.get("validation", {})
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
        labels=row.manifest.get("labels"),
        expectations=len(validation.get("expectations", ())),
        quarantined=int(validation.get("quarantined", 0)),
        warnings=tuple(validation.get("warnings", ())),
        has_docs="data_docs" in validation,
    )
