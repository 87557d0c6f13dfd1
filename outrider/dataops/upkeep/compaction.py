"""Packing of small row files of a dataset into shared objects.

Only the place of rows (``sha256`` and ``packed``) changes, so every version reads as before. The pack is
stored first, and one transaction points the files at it; old objects are left to
:mod:`~outrider.dataops.upkeep.garbage`.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, Engine, distinct, func, select, update

from outrider.dataops.datasets.row_files import schema_of_file, writer_of
from outrider.dataops.datasets.stored_rows import MOST_BYTES, Run, VersionRows, runs_of
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import DatasetRowFile
from outrider.dataops.state.tables import table_of

FEW = 32
"""Small objects of a dataset before any are packed automatically."""
SMALL_ROWS, SMALL_BYTES = 65_536, 67_108_864
"""An object with as many rows or bytes is not small."""
PACK_ROWS, PACK_BYTES = 1_048_576, 536_870_912
"""Most rows and bytes that are packed together."""
GROUP_ROWS = 65_536
"""Rows of a group of a pack: most that an old version of few rows decodes for each part."""
_FILE = table_of(DatasetRowFile)


@dataclass(frozen=True, slots=True)
class _File:
    file: int
    sha256: str
    rows: int
    bytes: int
    parts: list[list[object]]
    packed: list[int] | None


@dataclass(frozen=True, slots=True)
class _Object:
    """Files that share an object."""

    sha256: str
    files: tuple[_File, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def is_small(self) -> bool:
        return self.rows < SMALL_ROWS and self.bytes < SMALL_BYTES


@dataclass(frozen=True, slots=True)
class Compaction:
    dataset: str
    before: int
    after: int
    packed_rows: int
    packed_bytes: int


def compact(
    engine: Engine,
    objects: LocalObjects,
    dataset: str,
    *,
    few: int = 1,
    reached: Callable[[str], None] = lambda _step: None,
) -> Compaction:
    """Pack runs of more than ``few`` small files. ``reached`` marks possible crash points."""
    with _alone(engine, objects) as note:
        with engine.connect() as connection:
            there = _objects_of(connection, dataset)
        rows = size = 0
        for chosen in _runs(objects, there, few):
            with tempfile.TemporaryFile(dir=objects.folder) as file:
                places = _write(objects, chosen, file)
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                note.begin(digest)
                reached("pack noted")
                file.seek(0)
                objects.put_file(file)
            reached("pack stored")
            for stored in chosen:
                objects.touch(stored.sha256)  # who reads by the old name has time, as if just made
            reached("old objects touched")
            if _point(engine, dataset, chosen, digest, places):
                rows, size = rows + sum(stored.rows for stored in chosen), size + objects.size(digest)
                reached("files pointed")
            note.end()
        with engine.connect() as connection:
            after = len(_objects_of(connection, dataset))
    return Compaction(dataset, len(there), after, rows, size)


def crowded(connection: Connection, *, few: int = FEW) -> dict[str, int]:
    count = func.count(distinct(_FILE.c.sha256))
    query = select(_FILE.c.dataset, count).where(_FILE.c.rows < SMALL_ROWS)
    rows = connection.execute(query.group_by(_FILE.c.dataset).having(count > few))
    return {str(dataset): int(number) for dataset, number in rows}


class _Note:
    """Note of the pack being stored, in the lock file of compactions."""

    def __init__(self, engine: Engine, objects: LocalObjects, file: BinaryIO) -> None:
        self._engine, self._objects, self._file = engine, objects, file
        self.end()  # of one that was killed

    def begin(self, digest: str) -> None:
        self._file.write(digest.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def end(self) -> None:
        """Delete the noted pack if unnamed: under the lock no one else can name it."""
        self._file.seek(0)
        digest = self._file.read().decode()
        with self._engine.connect() as connection:
            named = connection.scalar(select(_FILE.c.file).where(_FILE.c.sha256 == digest).limit(1))
        if len(digest) == len(hashlib.sha256().hexdigest()) and named is None:
            self._objects.remove(digest)
        self._file.seek(0)
        self._file.truncate()


@contextmanager
def _alone(engine: Engine, objects: LocalObjects) -> Iterator[_Note]:
    objects.folder.mkdir(parents=True, exist_ok=True)
    with (objects.folder / ".compaction").open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield _Note(engine, objects, file)


def _objects_of(connection: Connection, dataset: str) -> list[_Object]:
    rows = connection.execute(select(_FILE).where(_FILE.c.dataset == dataset).order_by(_FILE.c.file))
    found: list[list[_File]] = []
    for row in rows:
        file = _File(row.file, row.sha256, row.rows, row.bytes, row.parts, row.packed)
        if found and found[-1][0].sha256 == file.sha256:
            found[-1].append(file)
        else:
            found.append([file])
    return [_Object(files[0].sha256, tuple(files)) for files in found]


def _runs(objects: LocalObjects, there: Sequence[_Object], few: int) -> list[list[_Object]]:
    """Adjacent small objects of one schema, to be packed together."""
    found: list[list[_Object]] = []
    schema: pa.Schema | None = None
    run: list[_Object] = []
    for stored in there:
        if not stored.is_small:
            found, run = [*found, run], []
            continue
        mine = schema_of_file(objects.mapped(stored.sha256))
        full = sum(other.rows for other in run) + stored.rows > PACK_ROWS
        full = full or sum(other.bytes for other in run) + stored.bytes > PACK_BYTES
        if run and (full or not mine.equals(schema)):
            found, run = [*found, run], []
        schema = mine
        run.append(stored)
    return [run for run in [*found, run] if len(run) > few]


def _write(objects: LocalObjects, chosen: Sequence[_Object], file: BinaryIO) -> dict[int, list[int]]:
    """Write a pack; of each file, the row where each of its groups begins."""
    schema = schema_of_file(objects.mapped(chosen[0].sha256))
    runs = [(stored, part, run) for stored in chosen for part, run in _runs_in(stored)]
    places: dict[tuple[int, int], int] = {}
    at = 0
    with writer_of(file, schema) as writer:
        for part in sorted({part for _, part, _ in runs}):
            kept: list[pa.Table] = []
            for stored in chosen:
                mine = [run for of, own, run in runs if of is stored and own == part]
                if not mine:
                    continue
                table = VersionRows(stored.sha256, mine).read(objects.mapped(stored.sha256), schema)
                for run in mine:
                    places[run.file, run.position] = at
                    at += run.rows
                kept = _written(writer, [*kept, table], is_last=False)
            _written(writer, kept, is_last=True)
    return {
        old.file: [places[old.file, run.position] for _, run in runs_of(old.file, old.parts, None)]
        for stored in chosen
        for old in stored.files
    }


def _runs_in(stored: _Object) -> list[tuple[str, Run]]:
    return [run for file in stored.files for run in runs_of(file.file, file.parts, file.packed)]


def _written(writer: pq.ParquetWriter, tables: list[pa.Table], *, is_last: bool) -> list[pa.Table]:
    """Write whole groups; the rest waits for more of its part."""
    if not tables:
        return []
    table = pa.concat_tables(tables)
    most = max(1, min(GROUP_ROWS, MOST_BYTES * table.num_rows // max(table.nbytes, 1)))
    while table.num_rows >= most or (is_last and table.num_rows):
        writer.write_table(table.slice(0, most).combine_chunks(), row_group_size=most)
        table = table.slice(most)
    return [table] if table.num_rows else []


def _point(
    engine: Engine, dataset: str, chosen: Sequence[_Object], digest: str, places: dict[int, list[int]]
) -> bool:
    """All or none; False if a file has moved meanwhile."""
    files = [file for stored in chosen for file in stored.files]
    with write(engine) as connection:
        for file in files:
            same = _FILE.c.dataset == dataset, _FILE.c.file == file.file, _FILE.c.sha256 == file.sha256
            done = connection.execute(
                update(_FILE).where(*same).values(sha256=digest, packed=places[file.file])
            )
            if done.rowcount != 1:
                connection.rollback()
                return False
    return True
