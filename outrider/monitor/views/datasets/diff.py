"""Difference of dataset versions for its page: rows, reasons, columns."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.diff_reasons import reasons
from outrider.dataops.datasets.versions import RowChange, Version
from outrider.dataops.payloads.objects import CorruptObject, ObjectStore
from outrider.dataops.state.improvement_tables import DatasetRow, DatasetRowFile
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound

MOST_CHANGES = 20_000
"""Changes up to which a page compares versions."""
LOOKED_ROWS, PAGE_ROWS = 250, 50
_ROW, _FILE = table_of(DatasetRow), table_of(DatasetRowFile)


@dataclass(frozen=True, slots=True)
class DatasetDiffView:
    """Page of a difference."""

    name: str
    old: int
    new: int
    counts: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[RowChange, str]] = field(default_factory=list)
    """Some that differ, with the reason."""
    columns: list[tuple[str, int]] = field(default_factory=list)
    """Columns with the number of rows looked at that differ in them."""
    turns: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)
    """By label: before, after, number of rows."""
    why: list[tuple[str, int]] = field(default_factory=list)
    """Reasons with the number of rows looked at."""
    looked: int = 0
    """Rows that ``columns``, ``turns`` and ``why`` count."""
    first: int = 0
    fault: str = ""

    @property
    def total(self) -> int:
        """Rows that differ."""
        return sum(self.counts.values())


def read_dataset_diff(
    engine: Engine, objects: ObjectStore, model: str, name: str, old: int, new: int, *, first: int = 0
) -> DatasetDiffView:
    """Read the difference of two versions of a model's dataset.

    Raises
    ------
    NotFound
        If the model has no such version.
    """
    with engine.connect() as connection:
        before, after = (_version(connection, model, name, number) for number in (old, new))
        if (most := _most_changes(connection, name, old, new)) > MOST_CHANGES:
            fault = (
                f"up to {most:,} rows differ, too many for a page: `outrider dataset diff {name} {old} {new}`"
            )
            return DatasetDiffView(name, old, new, fault=fault)
        try:
            found = datasets.diff(connection, objects, before, after, limit=LOOKED_ROWS)
        except (NotFound, CorruptObject) as error:
            return DatasetDiffView(name, old, new, fault=str(error))
        why = reasons(connection, max(before, after, key=lambda one: one.number), found.rows)
    counts = {kind: len(getattr(found, kind)) for kind in ("changed", "removed", "added")}
    told = list(zip(found.rows, why, strict=True))
    columns = Counter(column for row in found.rows for column in row.columns)
    return DatasetDiffView(
        name,
        old,
        new,
        counts,
        told[first : first + PAGE_ROWS],
        columns.most_common(),
        _turns(found.rows),
        Counter(why).most_common(10),
        len(found.rows),
        first,
    )


def _version(connection: Connection, model: str, name: str, number: int) -> Version:
    found = datasets.get(connection, name, number)
    if found.model != model:
        raise NotFound(f"{found.id} is a dataset of model {found.model!r}, not of {model!r}")
    return found


def _most_changes(connection: Connection, name: str, old: int, new: int) -> int:
    """Most rows that may differ: those that came, went, or got another label in between."""
    low, high = sorted((old, new))
    added = select(func.sum(_FILE.c.rows)).where(
        _FILE.c.dataset == name, _FILE.c.file > low, _FILE.c.file <= high
    )
    gone = select(func.count()).where(
        _ROW.c.dataset == name, _ROW.c.removed.is_not(None), _ROW.c.removed > low, _ROW.c.removed <= high
    )
    return sum(connection.scalar(query) or 0 for query in (added, gone))


def _turns(rows: list[RowChange]) -> dict[str, list[tuple[str, str, int]]]:
    """Labels of changed rows, from which to which."""
    found: dict[str, Counter[tuple[str, str]]] = {}
    for row in rows:
        before, after = row.labels_before or {}, row.labels_after or {}
        for column in row.columns:
            if column.startswith("label."):
                turn = _said(before.get(column)), _said(after.get(column))
                found.setdefault(column.removeprefix("label."), Counter())[turn] += 1
    return {
        name: [(before, after, count) for (before, after), count in turns.most_common(20)]
        for name, turns in found.items()
    }


def _said(value: Any) -> str:
    return "null" if value is None else str(value)[:60]
