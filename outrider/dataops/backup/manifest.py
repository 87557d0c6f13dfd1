"""Backup manifest: files with SHA-256, and counts that restored folders match."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

from outrider.dataops.journal.journal import FORMAT_VERSION, TYPE_OF_FILE
from outrider.dataops.state.migrations import HEAD
from outrider.errors import OutriderError

NAME = "manifest.json"
FORMAT = 1
JOURNAL, DATABASE = "journal.db", "state.db"
CHUNK_BYTES = 1_048_576

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the current step, and done and total in its own unit."""


class BackupDamaged(OutriderError):  # noqa: N818 - reads as the state it is
    pass


@dataclass(frozen=True, slots=True)
class FileEntry:
    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Contents:
    journal_uuid: str
    """Identity that both databases carry."""
    journal_last_seq: int
    blocks: int
    records: int
    revision: str
    cursors: Mapping[str, int]
    """By ``model/slot``; none is after ``journal_last_seq``."""
    tables: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Manifest:
    """``manifest.json``; ``damaged`` objects were damaged before the copy."""

    release: str
    created_us: int
    contents: Contents
    files: tuple[FileEntry, ...]
    damaged: tuple[str, ...] = ()
    format: int = field(default=FORMAT)

    @property
    def total_bytes(self) -> int:
        return sum(entry.bytes for entry in self.files)

    def save(self, folder: Path) -> None:
        """Without this file a folder is no backup."""
        (folder / NAME).write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def load_manifest(folder: Path) -> Manifest:
    path = folder / NAME
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BackupDamaged(f"{folder} is no backup: it has no {NAME}") from None
    except (OSError, ValueError) as error:
        raise BackupDamaged(f"{path} cannot be read: {error}") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        came = raw.get("format") if isinstance(raw, dict) else raw
        raise BackupDamaged(f"{path}: format {FORMAT} expected, got {came!r}; restore it with its release")
    try:
        files = tuple(FileEntry(**entry) for entry in raw.pop("files"))
        contents, damaged = Contents(**raw.pop("contents")), tuple(raw.pop("damaged"))
        return Manifest(**raw, contents=contents, files=files, damaged=damaged)
    except (KeyError, TypeError) as error:
        raise BackupDamaged(f"{path} is not what a backup writes: {error}") from error


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_contents(folder: Path) -> Contents:
    """Check both databases of an idle folder and count their contents."""
    try:
        with closing(_open(folder / JOURNAL)) as journal, closing(_open(folder / DATABASE)) as database:
            return _contents(journal, database)
    except sqlite3.DatabaseError as error:
        raise BackupDamaged(f"{folder}: a database of it is damaged: {error}") from error


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)
    for (result,) in connection.execute("PRAGMA quick_check(1)"):
        if result != "ok":
            connection.close()
            raise BackupDamaged(f"{path} is damaged: {result}")
    return connection


def _contents(journal: sqlite3.Connection, database: sqlite3.Connection) -> Contents:
    def one(connection: sqlite3.Connection, sql: str) -> tuple[int, ...]:
        row: tuple[int, ...] = connection.execute(sql).fetchone() or (0,)
        return row

    if one(journal, "PRAGMA application_id") != (TYPE_OF_FILE,):
        raise BackupDamaged(f"{JOURNAL} is no journal of Outrider")
    (version,) = one(journal, "PRAGMA user_version")
    if version != FORMAT_VERSION:
        raise BackupDamaged(f"{JOURNAL} has format {version}, this release reads {FORMAT_VERSION}")
    (revision,) = one(database, "SELECT version_num FROM alembic_version")
    if str(revision) != HEAD:
        raise BackupDamaged(
            f"{DATABASE} has tables of another layout ({revision}), this release reads {HEAD}"
        )
    uuid = str(one(journal, "SELECT value FROM meta WHERE key = 'uuid'")[0])
    owner = database.execute("SELECT value FROM meta WHERE key = 'journal_uuid'").fetchone()
    if owner is not None and owner[0] != uuid:
        raise BackupDamaged(f"{DATABASE} belongs to journal {owner[0]}, but {JOURNAL} is {uuid}")
    (last,) = one(journal, "SELECT seq FROM sqlite_sequence WHERE name = 'block'")
    cursors = {f"{m}/{s}": seq for m, s, seq in database.execute("SELECT model, slot, seq FROM cursor")}
    if beyond := [name for name, seq in cursors.items() if seq > last]:
        raise BackupDamaged(f"{DATABASE} has judged blocks that {JOURNAL} does not have: {', '.join(beyond)}")
    names = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()
    return Contents(
        journal_uuid=uuid,
        journal_last_seq=last,
        blocks=one(journal, "SELECT count(*) FROM block")[0],
        records=one(journal, "SELECT coalesce(sum(rows), 0) FROM block WHERE kind = 'records'")[0],
        revision=str(revision),
        cursors=cursors,
        tables={name: one(database, f'SELECT count(*) FROM "{name}"')[0] for (name,) in names},
    )
