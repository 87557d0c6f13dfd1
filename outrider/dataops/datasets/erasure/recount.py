"""Column aggregates of versions, counted again without erased rows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from outrider.assertions import Batch
from outrider.dataops.datasets.aggregates import Aggregates, aggregates, merged
from outrider.dataops.datasets.frames import EXTREMES, values_by_name
from outrider.dataops.datasets.versions import Version, read_table
from outrider.dataops.payloads.objects import ObjectStore


@dataclass(slots=True)
class Recount:
    """Aggregates of the versions of a dataset, one after the other.

    A version that only added rows has those of its parent and of its own file; else all its rows are read.
    """

    connection: Connection
    objects: ObjectStore
    ids: Sequence[str]
    """Erased rows."""
    _last: tuple[int, Aggregates] | None = field(default=None, init=False)

    def pass_over(self, version: Version) -> None:
        """Go on from a version whose aggregates hold."""
        kept = version.manifest["validation"].get("aggregates")
        self._last = (version.number, kept) if kept else None

    def of(self, version: Version, kept: Aggregates, *, is_whole: bool) -> Aggregates:
        """Aggregates of a version in place of ``kept``."""
        before = None
        if self._last is not None and not is_whole and _only_adds(version):
            number, last = self._last
            before = last if number == version.parent and _are_alike(last, kept) else None
        names = [*dict.fromkeys(["id", *_columns(kept)])]
        known = set(version.schema.names)
        table = read_table(
            self.connection,
            self.objects,
            version,
            columns=[name for name in names if name in known],
            since=0 if before is None else version.number,
        )
        batch = Batch.from_arrow(without_erased(table, self.ids), model=version.model)
        found = _aggregates(batch, kept, before)
        self._last = version.number, found
        return found


def _columns(kept: Aggregates) -> list[str]:
    figures = tuple(f".{extreme}" for extreme in EXTREMES)
    names = (name.rpartition(".")[0] if name.endswith(figures) else name for name in kept["columns"])
    return sorted({*names, *kept["columns"]})


def _are_alike(kept: Aggregates, others: Aggregates) -> bool:
    return _counted(kept) == _counted(others)


def _aggregates(batch: Batch, kept: Aggregates, before: Aggregates | None = None) -> Aggregates:
    found = aggregates(
        batch.rows,
        values_by_name(batch, kept["columns"]),
        [(name, json.loads(values)) for name, sets in _counted(kept).items() for values in sorted(sets)],
    )
    found["columns"] = {name: column for name, column in found["columns"].items() if name in kept["columns"]}
    return found if before is None else merged(before, found)


def _counted(kept: Aggregates) -> dict[str, set[str]]:
    return {name: set(column.get("of", {})) for name, column in kept["columns"].items()}


def _only_adds(version: Version) -> bool:
    changes = version.manifest["changes"]
    return not changes["relabelled"] and not changes["removed"]


def without_erased(table: pa.Table, ids: Sequence[str]) -> pa.Table:
    """Table without the rows of some ids."""
    return table.filter(pc.invert(pc.is_in(table.column("id"), pa.array(ids, pa.string()))))
