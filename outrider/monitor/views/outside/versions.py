"""Work behind the routes of uploaded versions."""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import Field
from sqlalchemy import Connection, Engine
from typing_extensions import TypedDict

from outrider.addresses import origin_of
from outrider.dataops.datasets.references import open_version
from outrider.dataops.improvement import jobs
from outrider.dataops.model_kinds.endpoint import load_endpoint
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.folders import FOLDER
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, write
from outrider.dataops.uploads import registering, store
from outrider.dataops.uploads.announced import (
    Announced,
    AnnouncedFile,
    UploadKind,
    WrongUpload,
    check_announced,
)
from outrider.dataops.uploads.checks import ChampionFiles, check_digests, checked
from outrider.dataops.uploads.store import Pieces, UploadRow, WrongOffset
from outrider.errors import ConfigError, NotFound
from outrider.monitor.http.common import RequestBody, iso, known_model
from outrider.monitor.http.declared import Time
from outrider.monitor.http.limits import BodyBounds, ClientGone, body_parts
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.visitors import Visitor, of_job
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sources import loadable_source, opened, source_of
from outrider.monitor.settings.upload_section import UploadSettings

_WRITE_BYTES = 1_048_576
_MOST_CHECKS = 2
"""Uploads checked at once: each may take a core and gigabytes."""


class FileRequest(RequestBody):
    """File of a version to come."""

    name: str = Field(max_length=400)
    bytes: int = Field(ge=0, le=2**62)
    sha256: str = Field(max_length=64)


class VersionRequest(RequestBody):
    """Announcement of a version to come."""

    kind: UploadKind
    files: list[FileRequest] = Field(default_factory=list, max_length=1000)
    url: str | None = Field(default=None, max_length=2000)
    """Address of an endpoint, instead of files; ``[models.*.uploads] endpoints`` allows it."""
    dataset: str | None = Field(default=None, max_length=400)
    """``name@number`` that it learned from."""
    job: str | None = Field(default=None, max_length=100)
    """Retraining job that it was made for."""
    note: str = Field(default="", max_length=500)
    inputs: list[Annotated[str, Field(max_length=400)]] = Field(default_factory=list, max_length=10_000)
    classes: list[int | Annotated[str, Field(max_length=400)]] = Field(
        default_factory=list, max_length=100_000
    )


class UploadFile(TypedDict):
    """Announced file, and its received bytes."""

    name: str
    bytes: int
    received: int
    url: str
    """Where its bytes from ``received`` on are sent to, with PUT."""


class Upload(TypedDict):
    """Upload of a version."""

    upload: str
    model: str
    kind: str
    status: Literal["open", "done"]
    version: str | None
    job: str | None
    until: Time | None
    """Removed then, if it is not finished."""
    files: list[UploadFile]
    complete: str
    """Where to POST once all is there."""


class RegisteredVersion(TypedDict):
    """Registered version, and the job of its gate."""

    model: str
    version: str
    job: str


class VersionUploads:
    def __init__(self, engine: Engine, settings: Settings, objects: LocalObjects) -> None:
        self._engine, self._settings, self._objects = engine, settings, objects
        self._pieces = Pieces(settings.data_folder)
        self._lock = threading.Lock()
        self._checked: set[str] = set()

    def begin(self, model: str, body: VersionRequest, visitor: Visitor) -> Upload:
        settings, limits = self._settings, self._settings.limits
        own, job = known_model(settings, model), of_job(visitor, body.job, model=model)
        announced = _announced(body)
        if visitor.token is not None:  # it learned from the dataset of its job
            announced = replace(announced, dataset=None)
        with refusals():
            check_announced(announced, max_bytes=limits.upload_bytes)
        if announced.url is not None:
            _check_address(announced.url, own.uploads, model)
        with self._engine.connect() as connection:
            _champion(connection, model)
            if announced.dataset is not None:
                dataset = open_version(connection, announced.dataset)
                of_job(visitor, job, model=dataset.model)
                announced = replace(announced, dataset=dataset.id)
            if job is not None and jobs.get(connection, job).model != model:
                raise NotFound(f"job {job!r} is not of model {model!r}")
        there = self._pieces.names()  # before those still open are known: one that begins meanwhile stays
        with write(self._engine) as connection:
            store.expire(connection, now_us=now_us())
            self._check_room(connection, visitor, announced)
            made = store.begin(
                connection,
                model=model,
                announced=announced,
                job=job,
                is_token=visitor.token is not None,
                by=visitor.name,
                now_us=now_us(),
                until_us=_until_us(settings),
            )
            still = {row.id for row in store.list_open(connection)}
        for left in there - still:
            self._pieces.drop(left)
        return self.told(made)

    def get(self, upload: str, visitor: Visitor) -> Upload:
        with self._engine.connect() as connection:
            return self.told(_upload(connection, upload, visitor))

    async def append(self, upload: str, name: str, offset: int, request: Request, visitor: Visitor) -> int:
        found = await asyncio.to_thread(self._open, upload, visitor)
        number, file = _file(found, name)
        bounds = BodyBounds(max(file.bytes - offset, 0), self._settings.limits.ratio, "the announced size")
        try:
            with self._pieces.writing(upload, number, offset) as piece:
                await _write_all(request, piece, bounds, self._settings)
        except WrongOffset as error:
            raise ProblemError(problem(409, str(error), received=error.received)) from None
        await asyncio.to_thread(self._touch, upload)
        return piece.offset

    def complete(self, upload: str, visitor: Visitor) -> RegisteredVersion:
        with self._engine.connect() as connection:
            found = _upload(connection, upload, visitor)
            if found.version is not None:
                return _registered(connection, found)
            champion = _champion_files(connection, self._settings, self._objects, found.model)
        announced = found.announced
        numbers = {file.name: number for number, file in enumerate(announced.files)}
        parts = {name: self._pieces.path(upload, number) for name, number in numbers.items()}
        default, cache = _default(self._settings, found.model), self._settings.data_folder / FOLDER
        with refusals():
            check_digests(announced, parts, lambda name: self._pieces.drop_file(upload, numbers[name]))
            with self._checking(upload), self._pieces.stage(upload) as stage:
                content = checked(announced, parts, champion, default, stage)
                if content.source.is_uploaded:
                    _check_endpoint(opened(self._settings, found.model, content.source))
                kept = registering.keep(self._objects, announced, parts, content, champion, cache)
            with write(self._engine) as connection:
                again = store.get(connection, upload)
                if again.version is not None:
                    return _registered(connection, again)
                version, job = registering.register(
                    connection, again, kept, champion=champion.row.version, now_us=now_us()
                )
        self._pieces.drop(upload)
        return {"model": found.model, "version": version, "job": job}

    def drop(self, upload: str, visitor: Visitor) -> None:
        with write(self._engine) as connection:
            if _upload(connection, upload, visitor).status == "open":
                store.touch(connection, upload, 0)
                store.expire(connection, now_us=1)
        self._pieces.drop(upload)

    def told(self, found: UploadRow) -> Upload:
        here, is_done = f"/v1/uploads/{found.id}", found.status == "done"
        files: list[UploadFile] = [
            {
                "name": file.name,
                "bytes": file.bytes,
                "received": file.bytes if is_done else self._pieces.received(found.id, number),
                "url": f"{here}/files/{file.name}",
            }
            for number, file in enumerate(found.announced.files)
        ]
        return {
            "upload": found.id,
            "model": found.model,
            "kind": found.announced.kind,
            "status": found.status,
            "version": found.version,
            "job": found.job,
            "until": None if is_done else iso(found.until_us),
            "files": files,
            "complete": f"{here}/complete",
        }

    def _check_room(self, connection: Connection, visitor: Visitor, announced: Announced) -> None:
        """Refuse an upload for which the disk, or its sender's share, has no room."""
        is_token, most = visitor.token is not None, self._settings.limits.uploads
        rows = store.list_open(connection)
        mine = [row for row in rows if (row.token, row.begun_by) == (is_token, visitor.name)]
        if is_token:  # its upload before is about to be replaced
            rows, mine = [row for row in rows if row not in mine], []
        if len(mine) >= most:
            raise _too_many(f"{most} uploads of {visitor.name!r} are unfinished (limits.uploads)")
        more = sum(file.bytes for file in announced.files)
        held = sum(self._held(row) for row in rows)
        room = _free_bytes(self._settings) + held
        if sum(row.bytes for row in mine) + more > room // 2:
            raise _too_many(
                f"unfinished uploads of {visitor.name!r} would have more than half of the "
                f"{max(room, 0)} bytes that the disk has for uploads",
                status=507,
            )
        _check_disk(self._settings, sum(row.bytes for row in rows) - held + more)

    def _held(self, found: UploadRow) -> int:
        return sum(self._pieces.received(found.id, number) for number in range(len(found.announced.files)))

    def _open(self, upload: str, visitor: Visitor) -> UploadRow:
        with self._engine.connect() as connection:
            found = _upload(connection, upload, visitor)
        if found.status != "open":
            raise ProblemError(problem(409, f"upload {upload!r} is finished: it is version {found.version}"))
        return found

    @contextmanager
    def _checking(self, upload: str) -> Iterator[None]:
        """Turn of an upload's check; 429 while it is checked, or too many are."""
        with self._lock:
            if upload in self._checked or len(self._checked) >= _MOST_CHECKS:
                detail = f"{len(self._checked)} uploads are being checked: send this again in a moment"
                raise ProblemError(problem(429, detail, headers={"retry-after": "5"}))
            self._checked.add(upload)
        try:
            yield
        finally:
            with self._lock:
                self._checked.discard(upload)

    def _touch(self, upload: str) -> None:
        with write(self._engine) as connection:
            store.touch(connection, upload, _until_us(self._settings))


def _announced(body: VersionRequest) -> Announced:
    files = tuple(AnnouncedFile(file.name, file.bytes, file.sha256) for file in body.files)
    return Announced(
        body.kind, files, body.url, body.dataset, body.note, tuple(body.inputs), tuple(body.classes)
    )


def _upload(connection: Connection, id_: str, visitor: Visitor) -> UploadRow:
    """Upload that a visitor may continue: with its job's token, or a key of its model."""
    found = store.get(connection, id_)
    of_job(visitor, found.job if found.token else "", model=found.model)
    return found


def _file(found: UploadRow, name: str) -> tuple[int, AnnouncedFile]:
    files = found.announced.files
    number = next((n for n, file in enumerate(files) if file.name == name), None)
    if number is None:
        raise NotFound(
            f"no file {name[:400]!r} was announced; there are {', '.join(file.name for file in files)}"
        )
    return number, files[number]


async def _write_all(request: Request, piece: store.Piece, bounds: BodyBounds, settings: Settings) -> None:
    """Body to disk as it comes, a megabyte at a time in memory."""
    waiting = bytearray()
    try:
        async for part in body_parts(request.receive, dict(request.scope["headers"]), bounds):
            waiting += part
            if len(waiting) >= _WRITE_BYTES:
                await asyncio.to_thread(_check_disk, settings)
                await asyncio.to_thread(piece.write, bytes(waiting))
                waiting.clear()
    except ClientGone:
        await asyncio.to_thread(piece.write, bytes(waiting))  # what came is there when it goes on
        raise ProblemError(problem(400, "the connection closed before the body was complete")) from None
    await asyncio.to_thread(piece.write, bytes(waiting))


def _too_many(why: str, *, status: int = 429) -> ProblemError:
    detail = f"{why}: finish one, DELETE it, or send again later"
    return ProblemError(problem(status, detail, headers={"retry-after": "60"}))


def _until_us(settings: Settings) -> int:
    return now_us() + int(settings.limits.upload_s * 1e6)


def _free_bytes(settings: Settings) -> int:
    return shutil.disk_usage(settings.data_folder).free - settings.storage.min_free_bytes


def _check_disk(settings: Settings, more: int = 0) -> None:
    if _free_bytes(settings) < more:
        least = settings.storage.min_free_bytes + more
        detail = f"fewer than {least} bytes are free on the disk (storage.min_free_bytes and the files)"
        raise ProblemError(problem(507, detail, headers={"retry-after": "60"}))


def _check_address(url: str, allowed: UploadSettings, model: str) -> None:
    """Refuse an address that the configuration does not allow; sends no request."""
    try:
        _, place = origin_of(url)
    except ValueError as error:
        raise ProblemError(problem(422, f"url: {error}", field="url")) from None
    if place not in allowed.endpoints:
        raise ProblemError(
            problem(
                422,
                f"url: {place} is not allowed: [models.{model}.uploads] endpoints in the configuration lists "
                "the host:port that an upload may name",
                field="url",
            )
        )


def _check_endpoint(source: Source) -> None:
    """Refuse an endpoint that could not be asked, by its options alone."""
    try:
        load_endpoint(source)
    except ConfigError as error:
        raise WrongUpload(f"url: {error}") from None


def _champion(connection: Connection, model: str) -> models.Model:
    found = models.champion(connection, model)
    if found is None:
        raise ProblemError(
            problem(
                409,
                f"model {model!r} has no champion to judge a version against: name its kind in its section "
                "(architecture, folder, onnx, predictor or endpoint)",
            )
        )
    return found


def _champion_files(
    connection: Connection, settings: Settings, objects: LocalObjects, model: str
) -> ChampionFiles:
    found = _champion(connection, model)
    on_disk = loadable_source(settings, found)
    has_weights = found.weights is not None and objects.has(found.weights)
    weights = objects.path(str(found.weights)) if has_weights else None
    folder = None
    if on_disk.kind == "hf":
        folder = (settings.base / on_disk.reference).resolve()
    return ChampionFiles(found, Source.from_json(found.source), weights, folder)


def _default(settings: Settings, model: str) -> Source:
    """Source of the section, for what an announcement leaves open."""
    own = settings.models[model]
    told = source_of(settings, model)
    return told or Source("endpoint", "", task=own.task, inputs=own.inputs, classes=own.classes)


@contextmanager
def refusals() -> Iterator[None]:
    """Refusals of content as problems that name file and tensor."""
    try:
        yield
    except WrongUpload as error:
        facts: dict[str, Any] = error.facts
        raise ProblemError(problem(422, str(error), **facts)) from None


def _registered(connection: Connection, found: UploadRow) -> RegisteredVersion:
    job = found.job
    if job is None or not found.token:
        asked = (one for one in jobs.recent(connection, model=found.model, limit=1000))
        job = next((one.id for one in asked if one.params.get("candidate") == found.version), job or "")
    return {"model": found.model, "version": str(found.version), "job": job}
