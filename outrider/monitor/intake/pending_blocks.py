"""Pending blocks to append, and halves to join."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from outrider.dataops.journal.journal import Kind

from .fast_json import KnownRecords
from .fast_v2 import KnownTensors
from .request_parts import Side


@dataclass(frozen=True, slots=True)
class PendingBlock:
    """A block that waits to be appended.

    Parameters
    ----------
    kind
        ``records`` or ``labels``.
    model
        Name of the model.
    digest
        Digest of the table's schema: equal digests may be merged.
    table
        The rows; records in the column order of a `Batch`.
    """

    kind: Kind
    model: str
    digest: str
    table: pa.RecordBatch

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def only_id(self) -> str | None:
        """Id of the row, when there is one only."""
        return str(self.table.column("id")[0]) if self.rows == 1 else None


@dataclass(frozen=True, slots=True)
class PendingHalf:
    """Unmatched side of records, to be joined; ``block`` holds its rows.

    Parameters
    ----------
    key, side
        As of a `HalfPart`.
    block
        Its rows in the columns of whole records.
    """

    key: str
    side: Side
    block: "Block"


Block: TypeAlias = PendingBlock | KnownRecords | KnownTensors


def values_of(block: Block, names: Iterable[str]) -> dict[str, int]:
    """Values other than null, by column.

    Columns that a block of bytes does not bring have none.
    """
    if isinstance(block, KnownRecords):
        return block.values_of(names)
    if isinstance(block, KnownTensors):
        brought = {column.name for column in block.shape.columns}
        return {name: block.rows for name in names if name in brought}
    table = block.table
    found = {name: table.schema.get_field_index(name) for name in names}
    return {name: block.rows - table.column(at).null_count for name, at in found.items() if at >= 0}
