"""Types of learned columns, decided by the votes of their first thousand values.

The first value alone would decide by chance, and one odd record would lock out all that follow. Until a
column is settled another type takes its place as soon as it has as many votes, and one more for each change
before, so that a column that alternates comes to rest.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from outrider.assertions.batch import TIME
from outrider.assertions.batch.columns import is_tensor
from outrider.dataops.payloads.columns import PAYLOAD, Payload
from outrider.dataops.redaction.texts import is_text

from .column_types import describe, is_list, nested_rows
from .list_columns import Bounds, convert_column

SETTLED = 1000
_MOST_RIVALS = 16
_LOOKED_AT = 1000
"""Misfit values of one block whose type is looked at."""
_NUMBERS = (pa.int64(), pa.float64())
_PLAIN: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime: TIME,
    Payload: PAYLOAD,
}


@dataclass(slots=True)
class Weight:
    own: int = 0
    """Values of the type that the column has."""
    rivals: dict[str, int] = field(default_factory=dict)
    """Values of other types, by `type_key`: stored before the type changed, or refused."""
    changes: int = 0
    before: int = 0
    """Values that came while the field had no column of its own."""

    @property
    def values(self) -> int:
        return self.own + sum(self.rivals.values())

    @property
    def is_settled(self) -> bool:
        return self.values >= SETTLED

    def add(self, votes: Mapping[str, int]) -> None:
        """Count refused values; only some of very many types are remembered."""
        for rival, count in votes.items():
            if rival in self.rivals or len(self.rivals) < _MOST_RIVALS:
                self.rivals[rival] = self.rivals.get(rival, 0) + count

    def change(self, old: pa.DataType, new: pa.DataType) -> None:
        own = self.rivals.pop(type_key(new), 0)
        if self.own:
            self.rivals[type_key(old)] = self.rivals.get(type_key(old), 0) + self.own
        self.own = own
        self.changes += 1


def type_key(kind: pa.DataType) -> str:
    """Name of types that share one column without a change: integers and floats are one."""
    if is_list(kind) and kind.value_type in _NUMBERS:
        return "list(number)"
    return "number" if kind in _NUMBERS else describe(kind)


@dataclass(frozen=True, slots=True)
class Rival:
    kind: pa.DataType
    rows: list[int]


def rivals(values: list[Any] | pa.Array, rows: Iterable[int], known: pa.DataType) -> dict[str, Rival]:
    """Types of misfit values in ``rows``, for those that fit any column."""
    rows = list(rows)[:_LOOKED_AT]
    if isinstance(values, pa.Array):
        taken = values.take(pa.array(rows, pa.int64()))
        chosen = nested_rows(taken) if is_tensor(values.type) else taken.to_pylist()
    else:
        chosen = [values[row] for row in rows]
    found: dict[str, Rival] = {}
    for row, value in zip(rows, chosen, strict=True):
        kind = _kind(value, known)
        if kind is None:
            continue
        rival = found.setdefault(type_key(kind), Rival(kind, []))
        rival.rows.append(row)
        if kind == pa.float64() and rival.kind == pa.int64():
            found[type_key(kind)] = Rival(kind, rival.rows)
    return found


def joined(known: pa.DataType, rival: pa.DataType) -> pa.DataType:
    """Rival type, with uncontradicted fields of a list of objects."""
    if not (_holds_objects(known) and _holds_objects(rival)):
        return rival
    fields = {one.name: one.type for one in known.value_type}
    for one in rival.value_type:
        old = fields.get(one.name)
        if not (old == pa.float64() and one.type == pa.int64()):
            fields[one.name] = one.type
    return pa.list_(pa.struct([pa.field(name, kind) for name, kind in fields.items()]))


def _kind(value: Any, known: pa.DataType) -> pa.DataType | None:
    python = type(value)
    if python in (list, np.ndarray):
        return _kind_of_list(value, known)
    if (python is float and not math.isfinite(value)) or (python is str and not is_text(value)):
        return None
    if python is int and not -(2**63) <= value < 2**63:
        return None
    return _PLAIN.get(python)


def _kind_of_list(value: list[Any], known: pa.DataType) -> pa.DataType | None:
    found = convert_column([value], None, declared=False, bounds=Bounds())
    if found.array is None or found.bad or found.disagreeing:
        return None
    kind = found.array.type
    if is_list(kind) and pa.types.is_null(kind.value_type):
        return None
    if is_tensor(kind) and is_tensor(known) and len(kind.shape) == len(known.shape) == 1:
        return pa.list_(pa.float64())  # vectors of several lengths are lists
    return joined(known, kind)


def _holds_objects(kind: pa.DataType) -> bool:
    return is_list(kind) and pa.types.is_struct(kind.value_type)
