"""Collection of unnamed objects of datasets, and of unused caches.

Only old row files, Data Docs and sent tables that nothing names: a running commit has touched what it will
name. Other objects, such as weights and payloads, stay.
"""

import gzip
import shutil
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, Engine, select

from outrider.assertions.batch.schema import MODEL_KEY
from outrider.dataops.models.registry import objects_of_versions
from outrider.dataops.payloads.objects import LocalObjects, is_digest
from outrider.dataops.state.improvement_tables import DatasetRowFile, DatasetVersion, Job
from outrider.dataops.state.job_states import OPEN
from outrider.dataops.state.tables import table_of

Kind: TypeAlias = Literal["row files", "data docs", "sent tables", "broken writes", "caches"]
AGE_S = 86_400.0
"""Age of objects, longer than any commit takes."""
_FILE, _VERSION, _JOB = table_of(DatasetRowFile), table_of(DatasetVersion), table_of(Job)
_PARQUET, _GZIP = b"PAR1", b"\x1f\x8b\x08\x00\x00\x00\x00\x00"
"""Gzip without a time, as Data Docs are written."""
_DOCS = b'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>'


@dataclass(frozen=True, slots=True)
class Garbage:
    kind: Kind
    path: Path
    bytes: int


@dataclass(frozen=True, slots=True)
class CollectedGarbage:
    files: tuple[Garbage, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def by_kind(self) -> dict[str, dict[str, int]]:
        counts, sizes = Counter[str](), Counter[str]()
        for file in self.files:
            counts[file.kind] += 1
            sizes[file.kind] += file.bytes
        return {kind: {"files": counts[kind], "bytes": sizes[kind]} for kind in sorted(counts)}


def collect_garbage(
    engine: Engine,
    objects: LocalObjects,
    *,
    caches: Sequence[Path] = (),
    older_than_s: float = AGE_S,
    is_dry: bool = False,
    reached: Callable[[str], None] = lambda _step: None,
) -> CollectedGarbage:
    """A killed collection leaves every version whole."""
    with engine.connect() as connection:
        named, sent = named_objects(connection), _sent_tables(connection)
        named |= objects_of_versions(connection, objects)  # a file of theirs may look like one of a dataset
    reached("names read")
    found: list[Garbage] = []
    for file in _unnamed(objects, named, sent, older_than_s):
        if is_dry or objects.remove_old(file.path.name, older_than_s=older_than_s):
            found.append(file)
            reached("object deleted")
    for path in caches:
        found.append(Garbage("caches", path, _size(path)))
        if not is_dry:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            reached("cache deleted")
    return CollectedGarbage(tuple(found))


def named_objects(connection: Connection) -> set[str]:
    docs = _VERSION.c.manifest["validation"]["data_docs"].as_string()
    table = _JOB.c.params["object"].as_string()
    queries = (
        select(_FILE.c.sha256).distinct(),
        select(docs).where(docs.is_not(None)),
        select(table).where(table.is_not(None), _JOB.c.status.in_(OPEN)),
    )
    return {digest for query in queries for digest in connection.scalars(query)}


def _sent_tables(connection: Connection) -> set[str]:
    table = _JOB.c.params["object"].as_string()
    return set(connection.scalars(select(table).where(table.is_not(None))))


def _unnamed(objects: LocalObjects, named: set[str], sent: set[str], age_s: float) -> Iterator[Garbage]:
    before = time.time() - age_s
    for path in sorted(objects.folder.glob("??/*")) + sorted(objects.folder.glob(".part-*")):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if status.st_mtime >= before or path.name in named:
            continue
        if path.name.startswith(".part-"):
            yield Garbage("broken writes", path, status.st_size)
        elif is_digest(path.name) and (kind := _kind_of(path, sent)) is not None:
            yield Garbage(kind, path, status.st_size)


def _kind_of(path: Path, sent: set[str]) -> Kind | None:
    """Kind of an object that datasets write, else None."""
    if path.name in sent:
        return "sent tables"
    try:
        with path.open("rb") as file:
            head = file.read(len(_GZIP))
        if head[: len(_PARQUET)] == _PARQUET:
            return "row files" if MODEL_KEY in (pq.read_schema(path).metadata or {}) else None
        if head == _GZIP:
            with gzip.open(path) as file:
                return "data docs" if file.read(len(_DOCS)) == _DOCS else None
    except (OSError, EOFError, zlib.error, pa.ArrowException):
        pass  # somebody else's, or damaged: not to be judged here
    return None


def _size(path: Path) -> int:
    try:
        if path.is_dir():  # what links share with objects is not freed
            return sum(file.stat().st_size for file in path.rglob("*") if file.stat().st_nlink == 1)
        return path.stat().st_size
    except FileNotFoundError:
        return 0
