"""Records of one model in a request, before their columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from .column_types import Values
from .pending_blocks import PendingBlock, Side


class RequestPart(msgspec.Struct, frozen=True):  # a dataclass takes as long as to parse a record
    model: str
    """``""`` when none was given."""
    indices: Sequence[int]
    """Place of every row in what was sent."""
    system: dict[str, Values]
    fields: dict[str, list[dict[str, Any] | None]] = {}
    """``inputs``, ``outputs``, … as one dictionary (or None) per row."""
    columns: dict[str, Values] = {}
    """The same under full names, if they came as columns."""
    known: PendingBlock | None = None
    """Instead of all these: records that fit, as one block."""
    has_own_names: bool = False
    """Whether the protocol itself names the fields, so that none can be misnamed."""

    def id_of(self, row: int) -> str | None:
        if self.known is not None:
            return short_id(self.known.table.column("id")[row])
        values = self.system.get("id")
        return None if values is None else short_id(values[row])

    def take(self, rows: list[int]) -> "RequestPart":
        return RequestPart(
            model=self.model,
            indices=[self.indices[row] for row in rows],
            system={name: _take(values, rows) for name, values in self.system.items()},
            fields={name: [values[row] for row in rows] for name, values in self.fields.items()},
            columns={name: _take(values, rows) for name, values in self.columns.items()},
            has_own_names=self.has_own_names,
        )

    def slice(self, rows: range) -> "RequestPart":
        place = slice(rows.start, rows.stop)
        return RequestPart(
            model=self.model,
            indices=self.indices[place],
            system={name: values[place] for name, values in self.system.items()},
            fields={name: values[place] for name, values in self.fields.items()},
            columns={name: values[place] for name, values in self.columns.items()},
            has_own_names=self.has_own_names,
        )


@dataclass(frozen=True, slots=True)
class HalfPart:
    """One side of records; rows become one record where ``key`` and their id are equal."""

    key: str
    """Scope of the ids, such as the source of an event or a trace."""
    side: Side
    part: RequestPart


def short_id(value: Any) -> str | None:
    """Id as received, shortened to 256 characters."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    return None if value is None else str(value)[:256]


def _take(values: Values, rows: list[int]) -> Values:
    if isinstance(values, pa.Array):
        return values.take(pa.array(rows, pa.int64()))
    return [values[row] for row in rows]
