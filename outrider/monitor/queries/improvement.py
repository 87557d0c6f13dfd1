"""Datasets and lineage for pages, bounded SQL reads."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, select

from outrider.dataops.datasets import quarantine
from outrider.dataops.datasets.changes import RowCounts
from outrider.dataops.datasets.collect import datasets_of
from outrider.dataops.datasets.label_account import LabelAccount
from outrider.dataops.datasets.leak_moves import LeakReport
from outrider.dataops.datasets.quarantine import QuarantinedRow
from outrider.dataops.datasets.versions import Version
from outrider.dataops.improvement import watches
from outrider.dataops.models.lineage import trace
from outrider.dataops.state.improvement_tables import DatasetVersion
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound

from .watches import WatchFigures, watch_json

dataset = table_of(DatasetVersion)


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
    leaks: LeakReport | None = None
    """None where rows were removed alone."""
    expectations: int = 0
    quarantined: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    warnings: tuple[dict[str, Any], ...] = ()
    """Expectations that it does not meet, without being refused."""
    has_docs: bool = False
    """True where its Data Docs are kept."""
    erased: int = 0


def list_watches(engine: Engine, model: str, *, limit: int = 3) -> list[WatchFigures]:
    with engine.connect() as connection:
        return [watch_json(watch) for watch in watches.newest(connection, model, limit=limit)]


def list_datasets(engine: Engine, model: str, *, limit: int = 50) -> tuple[DatasetView, ...]:
    made = dataset.c.created_us.desc(), dataset.c.dataset, dataset.c.number.desc()
    keys = select(dataset.c.dataset, dataset.c.number).where(dataset.c.model == model)
    newest = keys.order_by(*made).limit(limit).subquery()
    same = (dataset.c.dataset == newest.c.dataset) & (dataset.c.number == newest.c.number)
    query = select(dataset).join(newest, same).order_by(*made)
    with engine.connect() as connection:
        return tuple(dataset_view(Version(**row._mapping)) for row in connection.execute(query))


def list_quarantine(engine: Engine, model: str, *, limit: int = 50) -> list[QuarantinedRow]:
    with engine.connect() as connection:
        names = datasets_of(connection, model)
        return quarantine.list_quarantine(connection, datasets=names, limit=limit)


def read_lineage(engine: Engine, model: str, *, start: str | None = None) -> dict[str, Any] | None:
    """Tree of the champion's ancestors, or another node's; None without one."""
    with engine.connect() as connection:
        try:
            return trace(connection, model, start=start)
        except NotFound:
            return None


def dataset_view(row: Version) -> DatasetView:
    counts: RowCounts = row.manifest["counts"]
    by_assertion, by_source, by_part = (
        tuple(Counter({name: rows for name, rows in kind.items() if name}).most_common())
        for kind in (counts["assertions"], counts["label_sources"], counts["parts"])
    )
    validation = row.manifest["validation"]
    return DatasetView(
        name=row.dataset,
        number=row.number,
        parent=row.parent,
        digest=row.digest,
        rows=row.rows,
        bytes=row.bytes,
        created_us=row.created_us,
        by_assertion=by_assertion,
        by_source=by_source,
        by_part=by_part,
        labels=row.manifest.get("labels"),
        leaks=row.manifest.get("leaks"),
        expectations=len(validation.get("expectations", ())),
        quarantined=int(validation.get("quarantined", 0)),
        changes=row.manifest["changes"],
        warnings=tuple(validation.get("warnings", ())),
        has_docs="data_docs" in validation,
        erased=int(row.manifest.get("erased", 0)),
    )
