"""Columns of a file as columns of records.

Which is the id, which are inputs, in which types they go.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.batch.schema import PARTS
from outrider.assertions.times import utc
from outrider.data_files import LeftOut, flat_parts
from outrider.errors import ConfigError

SYSTEM = ("id", "ts", "entity", "version", "seq", "weight", "partial", "model")
TEXTS = ("id", "entity", "version", "model", "source", "key")
TIME = pa.timestamp("us", tz="UTC")
_FULL = re.compile(rf"(?:{'|'.join(PARTS)})\..+|{'|'.join(SYSTEM)}", re.DOTALL)
_OF_LABELS = {"source": "source", "key": "key", "label": "label.label"}
"""Columns with a meaning where rows are only labels."""
_UNITS = ((10**17, 1000, "//"), (10**14, 1, "//"), (10**11, 1000, "*"), (0, 1_000_000, "*"))
"""Least size of a number of nano-, micro-, milliseconds or seconds since 1970, and its conversion to µs."""


@dataclass(frozen=True, slots=True)
class Names:
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attrs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """Columns by their names in the file; with ``inputs``, unnamed ones are left out, else they are
    inputs."""
    system: Mapping[str, str] = field(default_factory=dict)
    mapped: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> dict[str, str]:
        parts = {
            "inputs": self.inputs, "outputs": self.outputs, "attrs": self.attrs, "label": self.labels
        }  # fmt: skip
        found = {name: f"{part}.{name}" for part, names in parts.items() for name in names}
        found |= {name: full for full, name in self.system.items()}
        return found | {name: full for full, name in self.mapped.items()}

    def full_names(self, columns: Iterable[str]) -> dict[str, str]:
        """Full name of each column that is kept; ConfigError where a named one is missing or two collide."""
        columns = list(columns)
        named = self.named
        if missing := [name for name in named if name not in columns]:
            raise ConfigError(f"no column {missing[0]!r}; there are {', '.join(columns[:50])}")
        known = {name: named.get(name) or (name if _FULL.fullmatch(name) else "") for name in columns}
        if _are_labels(known):
            known |= {name: _OF_LABELS[name] for name, full in known.items() if not full}
        elif not self.inputs and not any(full.startswith("inputs.") for full in self.mapped):
            known |= {name: f"inputs.{name}" for name, full in known.items() if not full}
        found = {name: full for name, full in known.items() if full}
        if doubles := [full for full, times in Counter(found.values()).items() if times > 1]:
            both = ", ".join(name for name, full in found.items() if full == doubles[0])
            raise ConfigError(f"{doubles[0]} would be {both}: map or leave out one of them")
        return found


def _are_labels(known: Mapping[str, str]) -> bool:
    others = {name for name, full in known.items() if not full}
    fulls = known.values()
    return (
        ("id" in fulls or "entity" in fulls)
        and others <= _OF_LABELS.keys()
        and ("label" in others or any(full.startswith("label.") for full in fulls))
        and not any(full.startswith(("inputs.", "outputs.")) for full in fulls)
    )


def record_table(
    table: pa.Table, names: Names, places: Sequence[int], left: LeftOut
) -> tuple[pa.Table, Sequence[int]]:
    """Columns of records under full names in sendable types, and their places; empty columns and rows
    without a valid time are left out. ConfigError for a missing column or a wrong type of times."""
    table = _flat(table)
    full = names.full_names(table.column_names)
    columns: dict[str, Any] = {}
    odd = np.zeros(len(table), np.bool_)
    for name, target in full.items():
        column = table.column(name).combine_chunks()
        if pa.types.is_null(column.type):
            left.column(name, "it has no value")
            continue
        if target != "ts":
            columns[target] = _sendable(column, target)
            continue
        columns[target] = _time_column(column, name)
        odd = ~_mask(column.is_null(nan_is_null=True)) & ~_mask(columns[target].is_valid())
        for row in np.flatnonzero(odd):
            left.row(places[int(row)], f"{name}: a time expected, got {column[row].as_py()!r:.80}")
    if not columns:
        columns["id"] = pa.nulls(len(table), pa.string())
    found = pa.table(columns)
    return (
        (found, places)
        if not odd.any()
        else (found.filter(pa.array(~odd)), np.asarray(places)[~odd].tolist())
    )


def _mask(bools: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(bools.to_numpy(zero_copy_only=False), np.bool_)


def record_of(item: Mapping[str, Any], names: Names) -> dict[str, Any]:
    item = flat_parts(item)
    record: dict[str, Any] = {}
    for name, target in names.full_names([*item, *(n for n in names.named if n not in item)]).items():
        if item.get(name) is None:
            continue
        part, dot, rest = target.partition(".")
        if dot:
            record.setdefault(part, {})[rest] = item[name]
        else:
            record[target] = time_text(item[name]) if target == "ts" else item[name]
    return record


def time_text(value: Any) -> str:
    """Time of JSON as RFC 3339.

    A text, or a number since 1970; a text without an offset is UTC.

    Examples
    --------
    >>> time_text(1609459200), time_text("2021-01-01 00:00:00")
    ('2021-01-01T00:00:00+00:00', '2021-01-01T00:00:00+00:00')
    """
    at = _time_of(value)
    return str(value) if at is None else at.isoformat()  # the service says what is wrong with it


def _time_of(value: Any) -> datetime | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return utc(_micros(value)) if isfinite(value) else None
    try:
        at = datetime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _micros(value: float) -> int:
    for least, factor, way in _UNITS:
        if abs(value) >= least:
            return int(value // factor) if way == "//" else int(value * factor)
    return int(value)


def _time_column(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        at = column if kind.tz else pc.assume_timezone(column, "UTC")
        return at.cast(TIME, safe=False)
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("us")).cast(TIME)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)):
        raise ConfigError(f"column {name!r}: times expected, got {kind}")
    return pa.array([None if value is None else _time_of(value) for value in column.to_pylist()], TIME)


def _flat(table: pa.Table) -> pa.Table:
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name)
        kind = column.type
        names = [f.name for f in kind] if pa.types.is_struct(kind) else []
        if not names or "uri" in names:
            columns[name] = column
        elif set(names) <= {"bytes", "path"} and "bytes" in names:  # an image of a data set's file
            columns[name] = pc.struct_field(column, "bytes")
        else:
            inner = pa.table({f"{name}.{each}": pc.struct_field(column, each) for each in names})
            flat = _flat(inner)
            columns |= {each: flat.column(each) for each in flat.column_names}
    return pa.table(columns)


def _sendable(column: pa.Array, target: str) -> pa.Array:
    """Column in a type that intake takes; others stay and are refused there."""
    kind = column.type
    if target in TEXTS and not pa.types.is_string(kind):
        try:
            return column.cast(pa.string())
        except pa.ArrowException:
            raise ConfigError(f"column of {target}: texts or whole numbers expected, got {kind}") from None
    if pa.types.is_date(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return (column if kind.tz else pc.assume_timezone(column, "UTC")).cast(TIME, safe=False)
    return column
