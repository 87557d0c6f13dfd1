"""Dataset version for its page: facts, class mix, sample rows, changes, models."""

import json
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Engine, select

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.diff_reasons import reasons
from outrider.dataops.datasets.references import tags_of
from outrider.dataops.datasets.versions import RowChange, Version
from outrider.dataops.payloads.objects import CorruptObject, ObjectStore
from outrider.dataops.state.improvement_tables import LineageEdge
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound
from outrider.monitor.queries.improvement import DatasetView, dataset_view

from .diff import MOST_CHANGES

CHANGED_ROWS, SAMPLE_ROWS = 50, 10
_EDGE = table_of(LineageEdge)


@dataclass(frozen=True, slots=True)
class DatasetVersionView:
    """Page of a dataset version."""

    version: DatasetView
    columns: tuple[tuple[str, str], ...]
    mix: dict[str, list[tuple[str, int]]]
    """Rows of each class, by label column; empty where the model declares no classes."""
    rows: list[tuple[RowChange, str]]
    """Some of those that differ from the parent, with the reason."""
    sample: list[dict[str, Any]]
    models: list[tuple[str, str]]
    """Versions of models that were made with it, and in which role."""
    tags: list[str]
    fault: str = ""
    """Why its rows cannot be read."""


def read_dataset_version(
    engine: Engine, objects: ObjectStore, model: str, name: str, number: int
) -> DatasetVersionView:
    """Read a version of a model's dataset.

    Raises
    ------
    NotFound
        If the model has no such version.
    """
    with engine.connect() as connection:
        found = datasets.get(connection, name, number)
        if found.model != model:
            raise NotFound(f"{found.id} is a dataset of model {found.model!r}, not of {model!r}")
        trained = connection.execute(
            select(_EDGE.c.child, _EDGE.c.role)
            .where(
                _EDGE.c.parent_kind == "dataset", _EDGE.c.parent == found.id, _EDGE.c.child_kind == "model"
            )
            .order_by(_EDGE.c.created_us.desc())
        )
        models = [(child, role) for child, role in trained]
        rows: list[tuple[RowChange, str]] = []
        sample, fault = [], ""
        try:
            if found.parent is not None and sum(dataset_view(found).changes.values()) <= MOST_CHANGES:
                parent = datasets.get(connection, name, found.parent)
                some = datasets.diff(connection, objects, parent, found, limit=CHANGED_ROWS).rows
                rows = list(zip(some, reasons(connection, found, some), strict=True))
            sample = datasets.some_rows(connection, objects, found, limit=SAMPLE_ROWS)
        except (NotFound, CorruptObject) as error:
            fault = str(error)
        return DatasetVersionView(
            dataset_view(found),
            tuple(found.manifest["columns"].items()),
            _mix(found),
            rows,
            sample,
            models,
            tags_of(connection, found),
            fault,
        )


def _mix(version: Version) -> dict[str, list[tuple[str, int]]]:
    """Class mix, as validation keeps it."""
    kept = version.manifest["validation"].get("aggregates") or {"columns": {}}
    found = {}
    for column, facts in kept["columns"].items():
        for classes, counts in islice(facts.get("of", {}).items() if column.startswith("label.") else (), 1):
            named = [*map(str, json.loads(classes)), "another value"]
            found[column.removeprefix("label.")] = [
                (value, rows) for value, rows in zip(named, counts, strict=True) if rows
            ]
    return found
