"""Backup of a data folder while the service runs.

``state.db`` is copied as of just before the journal, so that no cursor lies after it and nothing unjudged has
expired; objects come last, as they are on disk before they are named.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from outrider.dataops.access.private_files import make_private
from outrider.dataops.payloads.objects import is_digest
from outrider.dataops.whole_file import sync_all, write_whole
from outrider.errors import OutriderError

from .manifest import (
    CHUNK_BYTES,
    DATABASE,
    JOURNAL,
    NAME,
    FileEntry,
    Manifest,
    Progress,
    read_contents,
    sha256_of,
)

OBJECTS = "objects"
STEP_PAGES = 2048
_KNOWN = "backups.json"
_LEFT_OUT = ("run", OBJECTS, "payloads", "arrow", "folders", "uploads")
"""Files of processes, objects, caches, and unfinished uploads."""


def back_up(folder: Path, destination: Path, *, release: str, now_us: int, progress: Progress) -> Manifest:
    """The destination stays empty until the copy is checked; objects are hard-linked."""
    for name in (DATABASE, JOURNAL):
        if not (folder / name).is_file():
            raise OutriderError(f"nothing to back up: {folder / name} does not exist")
    destination = destination.absolute()
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise OutriderError(f"{destination} is not empty; name a folder that does not exist yet")
    if destination.resolve().is_relative_to(folder.resolve()):
        raise OutriderError(f"{destination} lies in the data folder itself; name another place")
    with placed(destination) as part:
        manifest = _fill(part, folder, release=release, now_us=now_us, progress=progress)
        manifest.save(part)
    return manifest


@contextmanager
def placed(folder: Path) -> Iterator[Path]:
    """Private folder that takes the place of another once it is filled and on disk."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield part
        make_private(part)
        sync_all(part)
        os.replace(part, folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _fill(part: Path, folder: Path, *, release: str, now_us: int, progress: Progress) -> Manifest:
    with ExitStack() as both:
        names = (DATABASE, JOURNAL)  # in this order: see above
        moments = [both.enter_context(snapshot(folder / name)) for name in names]
        for name, moment in zip(names, moments, strict=True):
            copy_database(moment, part / name, progress)
    damaged = _copy_objects(folder, part, progress)
    _copy_rest(folder, part)
    progress("checking the databases", 0, 1)
    contents = read_contents(part)
    for left in (*part.glob("*.db-wal"), *part.glob("*.db-shm")):
        left.unlink()
    files = sorted(path for path in part.rglob("*") if path.is_file())
    entries = []
    for at, path in enumerate(files):
        progress("checking files", at, len(files))
        name = path.relative_to(part).as_posix()
        entries.append(FileEntry(name, path.stat().st_size, sha256_of(path)))
    return Manifest(release, now_us, contents, tuple(entries), tuple(damaged))


@contextmanager
def snapshot(source: Path) -> Iterator[sqlite3.Connection]:
    """One read transaction: otherwise SQLite restarts a copy at every commit."""
    uri = f"{source.resolve().as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as live:
        live.execute("PRAGMA query_only = ON")
        live.execute("BEGIN")
        live.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        yield live


def copy_database(live: sqlite3.Connection, target: Path, progress: Progress) -> None:
    with closing(sqlite3.connect(target)) as copy:
        copy.execute("PRAGMA synchronous = OFF")  # synced as a whole, before it is announced

        def report(_status: int, remaining: int, total: int) -> None:
            progress(f"copying {target.name}", total - remaining, total)

        live.backup(copy, pages=STEP_PAGES, progress=report)


def _copy_objects(folder: Path, part: Path, progress: Progress) -> list[str]:
    """Returns names of objects with another content."""
    found = [path for path in (folder / OBJECTS).rglob("*") if path.is_file() and path.name[0] != "."]
    damaged = []
    for at, path in enumerate(sorted(found)):
        progress("linking objects", at, len(found))
        target = part / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except OSError:  # another file system
            shutil.copyfile(path, target)
        if is_digest(path.name) and sha256_of(target) != path.name:
            damaged.append(path.name)
    return damaged


def _copy_rest(folder: Path, part: Path) -> None:
    """The key, proposals and other files, but those of running processes."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_database = name.name.startswith((DATABASE, JOURNAL))
        if name.parts[0] in _LEFT_OUT or is_database or path.is_symlink() or not path.is_file():
            continue
        target = part / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # it has just been replaced
            shutil.copy2(path, target)


def copy_hashed(source: Path, target: Path) -> str:
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as given, target.open("wb") as made:
        while chunk := given.read(CHUNK_BYTES):
            digest.update(chunk)
            made.write(chunk)
    shutil.copymode(source, target)
    return digest.hexdigest()


# ---- known backups ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnownBackup:
    path: str
    created_us: int

    @property
    def is_there(self) -> bool:
        return (Path(self.path) / NAME).is_file()


def known_backups(folder: Path) -> list[KnownBackup]:
    try:
        entries = json.loads((folder / _KNOWN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return sorted((KnownBackup(**entry) for entry in entries), key=lambda backup: backup.created_us)


def note_backup(folder: Path, destination: Path, *, now_us: int) -> None:
    """Replaces a backup at the same place."""
    made = KnownBackup(str(destination.absolute()), now_us)
    others = [backup for backup in known_backups(folder) if backup.path != made.path]
    write_whole(folder / _KNOWN, json.dumps([asdict(backup) for backup in [*others, made]]))
