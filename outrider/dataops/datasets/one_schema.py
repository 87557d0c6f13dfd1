"""Rows of several blocks with the inputs of one schema."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from outrider.assertions import Batch
from outrider.assertions.batch import REST
from outrider.assertions.columns import null_column, wider_type

from .row_files import conform, merged_schema
from .validation import MOST_IDS


class BlockRow(Protocol):
    """Row of a block with the id of its record."""

    @property
    def id(self) -> str:
        """Id of the record."""


P = TypeVar("P", bound=BlockRow)


@dataclass(slots=True)
class Fitting(Generic[P]):
    """Batches of one schema, reasons of the others, and warnings of columns."""

    batches: list[Batch] = field(default_factory=list)
    places: list[P] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    warnings: list[dict[str, Any]] = field(default_factory=list)


def one_schema(
    found: list[tuple[Batch, list[P]]], known: pa.Schema | None, name: str, inputs: Collection[str]
) -> Fitting[P]:
    """Fit the inputs of blocks to the schema of a dataset.

    Numbers widen. Where the dataset has no such column, it has the type of most rows. An input that does not
    fit is null where it has no value or the model is not fed it, and refuses its rows where it is.
    """
    fitting: Fitting[P] = Fitting()
    found = [(_with_values(batch, inputs), members) for batch, members in found]
    expected = {} if known is None else _kinds(known)
    weights: dict[str, Counter[pa.DataType]] = defaultdict(Counter)
    for batch, members in found:
        for column, kind in _kinds(batch.to_arrow().schema).items():
            weights[column][kind] += len(members)
    expected = {column: kinds.most_common(1)[0][0] for column, kinds in weights.items()} | expected
    lost: dict[str, tuple[str, list[str]]] = {}
    for batch, members in found:
        kinds = _kinds(batch.to_arrow().schema)
        wider = {column: wider_type(expected[column], kind) for column, kind in kinds.items()}
        unfit = [column for column, kind in wider.items() if kind is None]
        why = {}
        for column in unfit:
            held = None if known is None or column not in known.names else known.field(column).type
            there = f"{held or expected[column]} in {name if held else 'other rows'}"
            why[column] = f"{column}: {kinds[column]}, but {there}"
        valued = [column for column in unfit if not bool(batch.is_null(column).all())]
        odd = next((column for column in valued if not inputs or column in inputs), None)
        if odd is not None:
            fitting.rejected |= {place.id: why[odd] for place in members}
            continue
        for column in valued:
            lost.setdefault(column, (why[column], []))[1].extend(place.id for place in members)
        expected |= {column: kind for column, kind in wider.items() if kind is not None}
        fitting.batches.append(_without(batch, unfit))
        fitting.places += members
    fitting.warnings = [_lost_warning(column, why, ids) for column, (why, ids) in lost.items()]
    return fitting


def _lost_warning(column: str, why: str, ids: Sequence[str]) -> dict[str, Any]:
    return {
        "rule": "column_type",
        "field": column,
        "severity": "warning",
        "text": f"{why}; null in {len(ids)} rows, as the model is not fed it",
        "rows": len(ids),
        "ids": list(ids[:MOST_IDS]),
    }


def _kinds(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Types of the inputs."""
    return {f.name: f.type for f in schema if f.name.startswith("inputs.")}


def _with_values(batch: Batch, inputs: Collection[str]) -> Batch:
    """The batch without rare inputs, and without undeclared ones that no row has."""
    rare = f"inputs.{REST}"
    drop = [
        name
        for name in batch.names
        if name == rare
        or (name.startswith("inputs.") and name not in inputs and bool(batch.is_null(name).all()))
    ]
    return _without(batch, drop)


def _without(batch: Batch, columns: Sequence[str]) -> Batch:
    return Batch(batch.to_arrow().drop_columns(list(columns)), model=batch.model) if columns else batch


def with_inputs(batch: Batch, known: pa.Schema | None) -> Batch:
    """Add inputs of a dataset that a batch lacks, as nulls."""
    lacking = {f.name: f.type for f in known or () if f.name.startswith("inputs.") and not batch.has(f.name)}
    return batch.with_columns({name: null_column(batch.rows, kind) for name, kind in lacking.items()})


def concat(batches: Sequence[Batch]) -> Batch:
    """Join batches; columns that some lack are null there."""
    tables = [pa.Table.from_batches([batch.to_arrow()]) for batch in batches]
    schema = tables[0].schema
    for table in tables[1:]:
        schema, _ = merged_schema(schema, table.schema, "other rows")
    return Batch.from_arrow(
        pa.concat_tables([conform(table, schema) for table in tables]), model=batches[0].model
    )
