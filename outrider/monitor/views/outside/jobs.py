"""The API of jobs that are trained outside: inputs, progress, failure."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired

import pyarrow.parquet as pq
from fastapi import Request
from fastapi.responses import FileResponse
from pydantic import Field
from sqlalchemy import Connection
from typing_extensions import TypedDict

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.references import open_version
from outrider.dataops.datasets.scan import scan
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.loaders.arrow_cache import FOLDER as CACHE
from outrider.dataops.model_kinds.content import COUNTED
from outrider.dataops.models import registry as models
from outrider.dataops.models.registry import Model
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, write
from outrider.dataops.uploads.checks import sha256_of
from outrider.errors import NotFound
from outrider.monitor.http.common import RequestBody, iso, known_model, targets_of
from outrider.monitor.http.declared import Time
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.responses import binary
from outrider.monitor.http.routes import change, view
from outrider.monitor.http.visitors import GOES_ON, of_job, visitor_of
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sources import loadable_source
from outrider.monitor.views.service import Service

PARQUET = "application/vnd.apache.parquet"
OCTETS = "application/octet-stream"
_PROGRESS_US = 500_000
_REMEMBERED = 1000
_LOG_LINES, _LINE = 200, 2_000
Which = Literal["fresh", "replay"]


class ProgressReport(RequestBody):
    """Place of a training that runs elsewhere."""

    loss: float | None = Field(default=None, allow_inf_nan=False)
    step: int | None = Field(default=None, ge=0, le=2**53)
    steps: int | None = Field(default=None, ge=0, le=2**53)
    epoch: int | None = Field(default=None, ge=0, le=2**53)
    epochs: int | None = Field(default=None, ge=0, le=2**53)
    rows_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    eta_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class FailureReport(RequestBody):
    """Failure of a training that ran elsewhere."""

    error: str = Field(min_length=1, max_length=2_000)
    log: list[str] = Field(default_factory=list, max_length=1_000)
    """Last lines, the newest last."""


class TaskDataset(TypedDict):
    """Dataset version as a Parquet file."""

    name: str
    version: int
    digest: str
    rows: int
    """Of the whole version; those that are held out for the gate are not sent."""
    url: str


class TaskFile(TypedDict):
    """File of the champion."""

    name: str
    bytes: int
    sha256: str
    url: str


class TaskChampion(TypedDict):
    """Champion that the new version is to beat."""

    version: str
    digest: str
    kind: str
    files: list[TaskFile]
    """None of a function or an endpoint."""


class ExternalTask(TypedDict):
    """Training that waits for somebody outside."""

    job: str
    model: str
    status: str
    deadline: Time | None
    task: str
    target: str
    inputs: list[str]
    classes: list[int | str]
    settings: dict[str, Any]
    """Of ``[models.*.retrain]``, with what the job sets for itself."""
    dataset: TaskDataset | None
    replay: TaskDataset | None
    champion: TaskChampion | None
    upload: str
    """Where the version is announced, with POST."""


class TakenReport(TypedDict):
    """Report that came."""

    job: str
    status: str
    kept: NotRequired[bool]
    """False where another one had just come."""


def _parts(kind: str) -> dict[int | str, dict[str, Any]]:
    whole = binary(kind)
    return {**whole, 206: {**whole[200], "description": "Part of the file"}}


@view("/v1/retrains/{job}/task", scope="read", tag="models", jobs="waiting")
def get_task(service: Service, job: str, request: Request) -> ExternalTask:
    """Dataset, champion, settings and deadline of a job that is trained outside."""
    with service.engine.connect() as connection:
        found = _waiting(request, job, connection)
        champion = models.champion(connection, found.model)
        return _task(connection, service.settings, service.objects, found, champion)


@view(
    "/v1/retrains/{job}/datasets/{which}",
    scope="read",
    tag="models",
    jobs="waiting",
    response_class=FileResponse,
    responses=_parts(PARQUET),
)
def get_parquet(service: Service, job: str, which: Which, request: Request) -> FileResponse:
    """The rows to learn from as a Parquet file: ``fresh`` ones, or those to ``replay``.

    Rows that are held out for the gate are left out. A Range header goes on with a file that was cut.
    """
    with service.engine.connect() as connection:
        found = _waiting(request, job, connection)
        version = _version(connection, found, which)
        if version is None:
            raise NotFound(f"job {job!r} has no {which} dataset")
        path = _parquet(connection, service.settings, service.objects, version)
    sent = {**found.result.get("sent", {}), version.id: version.digest}
    if sent != found.result.get("sent"):
        with write(service.engine) as connection:  # an erasure meanwhile is found out by it
            jobs.note_waiting(connection, job, {"sent": sent})
    return FileResponse(path, media_type=PARQUET, headers={"etag": f'"{version.digest}"'})


@view(
    "/v1/retrains/{job}/champion/{name:path}",
    scope="read",
    tag="models",
    jobs="waiting",
    response_class=FileResponse,
    responses=_parts(OCTETS),
)
def get_champion_file(service: Service, job: str, name: str, request: Request) -> FileResponse:
    """File of the champion, as the task names it. A Range header goes on with a file that was cut."""
    with service.engine.connect() as connection:
        found = _waiting(request, job, connection)
        champion = models.champion(connection, found.model)
    files = {} if champion is None else champion_files(service.settings, service.objects, champion)
    if name not in files:
        raise NotFound(f"the champion has no file {name[:400]!r}; there is {', '.join(files) or 'none'}")
    return FileResponse(files[name], media_type=OCTETS)


class _Reports:
    def __init__(self, _service: Service) -> None:
        self.kept_us: dict[str, int] = {}


@change("POST /v1/retrains/{job}/progress", scope="promote", tag="models", jobs="waiting", status_code=202)
def report_progress(service: Service, job: str, body: ProgressReport, request: Request) -> TakenReport:
    """Report the place of the training: shown as that of a local one. Two a second are kept."""
    setattr(request.state, GOES_ON, True)  # no change that the log of writes is for
    now = now_us()
    with service.engine.connect() as connection:
        found = _open(_waiting(request, job, connection))
    last = service.one(_Reports).kept_us
    if now - last.get(job, 0) < _PROGRESS_US:
        return {"job": job, "status": found.status, "kept": False}
    told = body.model_dump(exclude_none=True)
    with write(service.engine) as connection:
        is_kept = jobs.note_waiting(connection, job, {"progress": told | {"at_us": now}})
    if len(last) > _REMEMBERED:
        last.clear()
    last[job] = now
    return {"job": job, "status": found.status, "kept": is_kept}


@change("POST /v1/retrains/{job}/failure", scope="promote", tag="models", jobs="waiting")
def report_failure(service: Service, job: str, body: FailureReport, request: Request) -> TakenReport:
    """Close the job as failed, with the last lines of its log; ``retrain.failed`` leaves."""
    with write(service.engine) as connection:
        _open(_waiting(request, job, connection))
        lines = [line[:_LINE] for line in body.log[-_LOG_LINES:]]
        jobs.fail(
            connection, job, body.error, targets=targets_of(service.settings), now_us=now_us(), log=lines
        )
    return {"job": job, "status": "failed"}


def _waiting(request: Request, job: str, connection: Connection) -> JobRow:
    """Job of a request; another job's token is refused."""
    of_job(visitor_of(request), job)
    return jobs.get(connection, job)


def champion_files(settings: Settings, objects: LocalObjects, found: Model) -> dict[str, Path]:
    """Files of a version that a training may start from, by name."""
    source = loadable_source(settings, found)
    files: dict[str, Path] = {}
    if source.kind == "hf":
        files |= _counted((settings.base / source.reference).resolve(), "")
    if source.adapter is not None:
        files |= _counted((settings.base / source.adapter).resolve(), "adapter/")
    if found.weights is not None and objects.has(found.weights):
        name = "model.onnx" if source.kind == "onnx" else "model.safetensors"
        files[name] = objects.path(found.weights)
    return files


def _counted(folder: Path, prefix: str) -> dict[str, Path]:
    return {f"{prefix}{path.name}": path for path in sorted(folder.glob("*")) if path.suffix in COUNTED}


def _open(found: JobRow) -> JobRow:
    if found.status != jobs.WAITING:
        raise ProblemError(problem(409, f"{found.id} is {found.status} and waits for no version"))
    return found


def _task(
    connection: Connection,
    settings: Settings,
    objects: LocalObjects,
    found: JobRow,
    champion: Model | None,
) -> ExternalTask:
    own = known_model(settings, found.model)
    here = f"/v1/retrains/{found.id}"
    waits = found.result.get("waits", {})
    return {
        "job": found.id,
        "model": found.model,
        "status": found.status,
        "deadline": iso(waits.get("until_us")),
        "task": own.task,
        "target": own.target,
        "inputs": list(own.inputs),
        "classes": list(own.classes),
        "settings": dict(found.result.get("settings", {})),
        "dataset": _dataset(_version(connection, found, "fresh"), f"{here}/datasets/fresh"),
        "replay": _dataset(_version(connection, found, "replay"), f"{here}/datasets/replay"),
        "champion": None if champion is None else _champion(settings, objects, champion, here),
        "upload": f"/v1/models/{found.model}/versions",
    }


def _dataset(version: datasets.Version | None, url: str) -> TaskDataset | None:
    if version is None:
        return None
    return {
        "name": version.dataset, "version": version.number, "digest": version.digest,
        "rows": version.rows, "url": url,
    }  # fmt: skip


def _champion(settings: Settings, objects: LocalObjects, found: Model, here: str) -> TaskChampion:
    files: list[TaskFile] = [
        {
            "name": name,
            "bytes": path.stat().st_size,
            "sha256": found.weights if path.name == found.weights else sha256_of(path),
            "url": f"{here}/champion/{name}",
        }
        for name, path in champion_files(settings, objects, found).items()
    ]
    kind = loadable_source(settings, found).kind
    return {"version": found.version, "digest": found.digest, "kind": kind, "files": files}


def _version(connection: Connection, found: JobRow, which: Which) -> datasets.Version | None:
    result: Mapping[str, Any] = found.result
    reference = result.get("dataset") if which == "fresh" else result.get("replayed")
    return None if not reference else open_version(connection, str(reference))


def _parquet(
    connection: Connection,
    settings: Settings,
    objects: LocalObjects,
    version: datasets.Version,
) -> Path:
    """Rows to learn from as a cached Parquet file, so that a cut download resumes with the same bytes."""
    folder = settings.data_folder / CACHE
    path = folder / f"{version.digest[:40]}-{version.dataset}-{version.number}.parquet"
    if path.exists():
        os.utime(path)
        return path
    folder.mkdir(parents=True, exist_ok=True)
    rows = scan(connection, objects, version, part="train")
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".part-")
    os.close(handle)
    try:
        with pq.ParquetWriter(temporary, rows.schema, compression="zstd") as writer:
            for batch in rows:
                writer.write_batch(batch)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
