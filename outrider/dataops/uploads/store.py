"""Uploads in progress: rows in the database, pieces in the data folder."""

import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, delete, insert, select, update

from outrider.dataops.state.improvement_tables import VersionUpload
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound, OutriderError

from .announced import Announced

FOLDER = "uploads"
"""In the data folder; not part of a backup."""
_UPLOAD = table_of(VersionUpload)


class WrongOffset(OutriderError):  # noqa: N818 - reads as the thing it is
    """A piece that does not continue its file."""

    def __init__(self, why: str, received: int) -> None:
        super().__init__(why)
        self.received = received


@dataclass(frozen=True, slots=True)
class UploadRow:
    id: str
    model: str
    job: str | None
    token: bool
    begun_by: str
    request: dict[str, Any] = field(repr=False)
    status: Literal["open", "done"]
    version: str | None
    created_us: int
    until_us: int

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.announced.files)

    @property
    def announced(self) -> Announced:
        return Announced.from_json(self.request)


def begin(
    connection: Connection,
    *,
    model: str,
    announced: Announced,
    job: str | None,
    is_token: bool,
    by: str,
    now_us: int,
    until_us: int,
) -> UploadRow:
    """A repeated announcement of a job returns the first."""
    if is_token:
        mine = _UPLOAD.c.job == job, _UPLOAD.c.token, _UPLOAD.c.status == "open"
        known = connection.execute(select(_UPLOAD).where(*mine)).first()
        if known is not None and known.request == announced.to_json():
            return UploadRow(**known._mapping)
        connection.execute(delete(_UPLOAD).where(*mine))
    id_ = f"up_{uuid.uuid4().hex}"
    connection.execute(
        insert(_UPLOAD).values(
            id=id_,
            model=model,
            job=job,
            token=is_token,
            begun_by=by,
            request=announced.to_json(),
            status="open",
            created_us=now_us,
            until_us=until_us,
        )
    )
    return get(connection, id_)


def get(connection: Connection, id_: str) -> UploadRow:
    row = connection.execute(select(_UPLOAD).where(_UPLOAD.c.id == id_)).first()
    if row is None:
        raise NotFound(f"no upload {id_!r}: it has expired, or another one of its job took its place")
    return UploadRow(**row._mapping)


def finish(connection: Connection, id_: str, version: str) -> None:
    connection.execute(update(_UPLOAD).where(_UPLOAD.c.id == id_).values(status="done", version=version))


def uploaded_versions(connection: Connection) -> set[tuple[str, str]]:
    is_done = _UPLOAD.c.status == "done", _UPLOAD.c.version.is_not(None)
    return {(row.model, row.version) for row in connection.execute(select(_UPLOAD).where(*is_done))}


def touch(connection: Connection, id_: str, until_us: int) -> None:
    """An upload that goes on expires later."""
    is_open = _UPLOAD.c.id == id_, _UPLOAD.c.status == "open"
    connection.execute(update(_UPLOAD).where(*is_open).values(until_us=until_us))


def expire(connection: Connection, *, now_us: int) -> None:
    late = _UPLOAD.c.status == "open", _UPLOAD.c.until_us < now_us
    connection.execute(delete(_UPLOAD).where(*late))


def list_open(connection: Connection) -> list[UploadRow]:
    rows = connection.execute(select(_UPLOAD).where(_UPLOAD.c.status == "open"))
    return [UploadRow(**row._mapping) for row in rows]


class Pieces:
    """Received bytes, one file per announced file.

    A request that writes to a file takes it over: what a cut connection left waiting writes no more.
    """

    def __init__(self, data_folder: Path) -> None:
        self._folder = data_folder / FOLDER
        self._lock = threading.Lock()
        self._writers: dict[Path, object] = {}

    def path(self, upload: str, number: int) -> Path:
        return self._folder / upload / f"{number}.part"

    @contextmanager
    def stage(self, upload: str) -> Iterator[Path]:
        folder = self._folder / upload
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder, prefix="stage-", ignore_cleanup_errors=True) as stage:
            yield Path(stage)

    def received(self, upload: str, number: int) -> int:
        try:
            return self.path(upload, number).stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def writing(self, upload: str, number: int, offset: int) -> Iterator["Piece"]:
        """Take a file over to append; ``WrongOffset`` if its size differs."""
        path, me = self.path(upload, number), object()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock:
            self._writers[path] = me
            handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            size = os.fstat(handle).st_size
        try:
            if size != offset:
                raise WrongOffset(f"offset: {size} expected, got {offset}: so many bytes are there", size)
            yield Piece(self, path, me, handle, offset)
        finally:
            os.close(handle)
            with self._lock:
                if self._writers.get(path) is me:
                    del self._writers[path]

    def append(self, path: Path, me: object, handle: int, data: bytes, at: int) -> None:
        """Fails if another request has taken the file over."""
        with self._lock:
            if self._writers.get(path) is not me:
                raise WrongOffset("another request goes on with this file", os.fstat(handle).st_size)
            while data:
                written = os.pwrite(handle, data, at)
                data, at = data[written:], at + written

    def drop_file(self, upload: str, number: int) -> None:
        self.path(upload, number).unlink(missing_ok=True)

    def drop(self, upload: str) -> None:
        shutil.rmtree(self._folder / upload, ignore_errors=True)

    def names(self) -> set[str]:
        return {path.name for path in self._folder.iterdir()} if self._folder.is_dir() else set()


@dataclass(slots=True)
class Piece:
    _pieces: Pieces
    _path: Path
    _me: object
    _handle: int
    offset: int

    def write(self, data: bytes) -> None:
        self._pieces.append(self._path, self._me, self._handle, data, self.offset)
        self.offset += len(data)
