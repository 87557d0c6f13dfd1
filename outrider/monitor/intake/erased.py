"""Erased records and subjects, recognized by hashes and refused."""

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from outrider.dataops.erasure.hashes import KEY_FILE, HashKey

from .pending_blocks import PendingBlock
from .rejections import RowFaults
from .request_parts import RequestPart

RECORD = "the record was erased; nothing more is stored of it"
SUBJECT = "the subject was erased behind this time; nothing more is stored of its records"


class ErasedNames:
    """Erased records, and subjects with the time of it (µs); read once: an erasure restarts all processes."""

    def __init__(
        self,
        key: HashKey | None = None,
        records: Iterable[bytes] = (),
        subjects: Iterable[tuple[bytes, int]] = (),
    ) -> None:
        self._key = key
        self._records = frozenset(records)
        self._subjects = dict(subjects)

    @classmethod
    def of_folder(cls, folder: Path) -> "ErasedNames":
        """Read by SQLite alone; empty if nothing was erased."""
        path = folder / "state.db"
        if not (folder / KEY_FILE).exists() or not path.exists():
            return cls()
        with contextlib.closing(sqlite3.connect(path)) as db:
            rows = db.execute("SELECT hash, kind, at_us FROM erased_hash").fetchall()
        records = [hash_ for hash_, kind, _ in rows if kind == "record"]
        subjects = [(hash_, at_us) for hash_, kind, at_us in rows if kind == "subject"]
        return cls(HashKey.of_folder(folder), records, subjects)

    def faults(self, part: RequestPart) -> RowFaults | None:
        if self._key is None:
            return None
        found = RowFaults(len(part.indices))
        ids = _texts(part.system.get("id") if part.known is None else part.known.table.column("id"))
        late = (
            self._late_labels(part)
            if self._subjects and part.known is None and "label" in _kinds(part)
            else []
        )
        found.add(late, "entity", SUBJECT)
        records = [
            row
            for row, id_ in enumerate(ids)
            if id_ is not None and self._key.record(part.model, id_) in self._records
        ]
        found.add(records, "id", RECORD)
        return found or None

    def _late_labels(self, part: RequestPart) -> list[int]:
        """Labels about a subject at or before the time of its erasure."""
        assert self._key is not None
        entities, times = _texts(part.system.get("entity")), _times(part.system.get("ts"))
        found = []
        for row, (entity, at_us) in enumerate(zip(entities, times, strict=False)):
            if entity is None:
                continue
            hashes = (self._key.subject(model, entity) for model in (None, part.model))
            until_us = max((self._subjects.get(one, 0) for one in hashes), default=0)
            if until_us and (at_us is None or at_us <= until_us):
                found.append(row)
        return found


def without_rows(block: PendingBlock, rows: Iterable[int]) -> PendingBlock:
    gone = set(rows)
    stay = pa.array([row for row in range(block.rows) if row not in gone], pa.int64())
    table = block.table.take(stay) if gone else block.table
    return PendingBlock(block.kind, block.model, block.digest, table)


def _kinds(part: RequestPart) -> set[str]:
    return {name.partition(".")[0] for name in (*part.fields, *part.columns)}


def _texts(values: object) -> Sequence[str | None]:
    if values is None:
        return ()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        texts: list[str | None] = values.cast(pa.string()).to_pylist()
        return texts
    assert isinstance(values, Iterable)
    return [None if value is None else str(value) for value in values]


def _times(values: object) -> Sequence[int | None]:
    if values is None:
        return ()
    column = values if isinstance(values, pa.Array) else pa.array(values, pa.timestamp("us", "UTC"))
    found: list[int | None] = pc.cast(column, pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return found
