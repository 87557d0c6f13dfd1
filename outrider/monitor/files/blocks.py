"""Block of a file: the unit of reading and sending."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Route = Literal["records", "labels", "cloudevents"]
ARROW = "application/vnd.apache.arrow.stream"
_JSON = {
    "records": "application/json",
    "labels": "application/json",
    "cloudevents": "application/cloudevents-batch+json",
}
NO_TIME = np.iinfo(np.int64).min
NOT_DONE = -1
"""Of a block followed by another one of the same rows."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Rows of a file already sent: up to ``done``, except ``refused``."""

    done: int = 0
    refused: frozenset[int] = field(default_factory=frozenset)

    def __contains__(self, place: int) -> bool:
        return place <= self.done and place not in self.refused


@dataclass(frozen=True, slots=True)
class FileBlock:
    route: Route
    rows: pa.Table | Sequence[Any]
    """A table under full names, or objects of JSON."""
    places: Sequence[int]
    done: int
    """Last row of the file sent with this block, or ``NOT_DONE``."""
    share: float

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, start: int, stop: int) -> "FileBlock":
        rows = (
            self.rows.slice(start, stop - start) if isinstance(self.rows, pa.Table) else self.rows[start:stop]
        )
        return replace(self, rows=rows, places=self.places[start:stop])

    def body(self) -> tuple[bytes, str]:
        if not isinstance(self.rows, pa.Table):
            return msgspec.json.encode(self.rows), _JSON[self.route]
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, self.rows.schema) as writer:
            writer.write_table(self.rows.combine_chunks())
        return sink.getvalue(), ARROW

    def keyed(self, file: str) -> "FileBlock":
        if self.route != "labels":
            return self
        listed = self.rows.to_pylist() if isinstance(self.rows, pa.Table) else self.rows
        keys = [
            row["key"] if row.get("key") is not None else _key(file, place, row)
            for place, row in zip(self.places, listed, strict=True)
        ]
        if not isinstance(self.rows, pa.Table):
            return replace(self, rows=[row | {"key": key} for row, key in zip(listed, keys, strict=True)])
        others = self.rows.select([name for name in self.rows.column_names if name != "key"])
        return replace(self, rows=others.append_column("key", pa.array(keys, pa.string())))

    def times_us(self) -> NDArray[np.int64]:
        if isinstance(self.rows, pa.Table):
            if "ts" not in self.rows.column_names:
                return np.full(len(self), NO_TIME)
            column = self.rows.column("ts").cast(pa.int64()).fill_null(NO_TIME)
            return np.asarray(column.to_numpy(), dtype=np.int64)
        key = "time" if self.route == "cloudevents" else "ts"
        texts = [row.get(key) if isinstance(row, dict) else None for row in self.rows]
        return np.array([_us(text) for text in texts], dtype=np.int64)

    def restamped(self) -> "FileBlock":
        if isinstance(self.rows, pa.Table):
            rows: Any = self.rows.drop_columns(["ts"]) if "ts" in self.rows.column_names else self.rows
        else:
            rows = [{k: v for k, v in row.items() if k not in ("ts", "time")} for row in self.rows]
        return replace(self, rows=rows)


def _key(file: str, place: int, label: Mapping[str, Any]) -> str:
    """Key of a label: equal for its line sent again, another for a corrected line."""
    content = msgspec.json.encode([file, place, _same_in_all_types(label)], enc_hook=str, order="sorted")
    return sha256(content).hexdigest()[:32]


def _same_in_all_types(value: Any) -> Any:
    """Value without nulls, whole floats as integers: one corrected line may turn a column into floats."""
    if isinstance(value, Mapping):
        return {name: _same_in_all_types(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_same_in_all_types(inner) for inner in value]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if is_whole else value


def _us(text: Any) -> int:
    try:
        at = datetime.fromisoformat(text)
        return int(at.timestamp() * 1e6) if at.tzinfo else NO_TIME
    except (TypeError, ValueError):
        return NO_TIME
