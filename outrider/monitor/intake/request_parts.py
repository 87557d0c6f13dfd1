"""Parts of a request: one model's records before their columns.

As a protocol read them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from .column_types import Values
from .pending_blocks import PendingBlock, Side


class RequestPart(msgspec.Struct, frozen=True):  # a dataclass takes as long as to parse a record
    """Records of one model as received.

    Parameters
    ----------
    model
        Name of the model; ``""`` when none was given.
    indices
        Place of every row in what was sent.
    system
        System columns by name; those that are missing get their defaults.
    fields
        ``inputs``, ``outputs``, … as one dictionary (or None) per row.
    columns
        The same as whole columns under their full names, when they came as columns.
    known
        Instead of all these: records found to fit, as one block.
    has_own_names
        Whether the protocol itself names the fields, so that none can be misnamed.
    """

    model: str
    indices: Sequence[int]
    system: dict[str, Values]
    fields: dict[str, list[dict[str, Any] | None]] = {}
    columns: dict[str, Values] = {}
    known: PendingBlock | None = None
    has_own_names: bool = False

    def id_of(self, row: int) -> str | None:
        """Id of a row as received, shortened to 256 characters."""
        if self.known is not None:
            return short_id(self.known.table.column("id")[row])
        values = self.system.get("id")
        return None if values is None else short_id(values[row])

    def take(self, rows: list[int]) -> "RequestPart":
        """Part of these rows."""
        return RequestPart(
            model=self.model,
            indices=[self.indices[row] for row in rows],
            system={name: _take(values, rows) for name, values in self.system.items()},
            fields={name: [values[row] for row in rows] for name, values in self.fields.items()},
            columns={name: _take(values, rows) for name, values in self.columns.items()},
            has_own_names=self.has_own_names,
        )

    def slice(self, rows: range) -> "RequestPart":
        """Part of neighbouring rows."""
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
    """One side of records.

    Rows of both sides become one record where ``key`` and their id are equal.

    Parameters
    ----------
    key
        Scope of the ids, such as the source of an event or a trace; ``""`` where ids stand for themselves.
    side
        ``request`` or ``response``: each waits for the other.
    part
        Its rows, each with an id.
    """

    key: str
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
