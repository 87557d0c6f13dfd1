"""The API of datasets: list, read, compare, commit.

Great Expectations never runs in this process: a commit becomes a job of the trainer, and the request waits.
"""

import asyncio
import dataclasses
import mmap
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Annotated, Any, BinaryIO, Literal, NotRequired, TypeAlias

import pyarrow as pa
from fastapi import Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, Field, ValidationError
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.dataops.datasets import references
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.changes import RowCounts
from outrider.dataops.datasets.collect import dataset_of
from outrider.dataops.datasets.diff_reasons import reasons
from outrider.dataops.datasets.label_account import LabelAccount, account_words
from outrider.dataops.datasets.leak_moves import LeakReport
from outrider.dataops.datasets.references import (
    Tag,
    TagTaken,
    check_dataset_name,
    find_version,
    name_of,
    tags_of,
)
from outrider.dataops.datasets.scan import ipc_stream, scan
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.job_states import OPEN
from outrider.monitor.http.common import RequestBody
from outrider.monitor.http.declared import FieldsOf, Listed, declared
from outrider.monitor.http.limits import BodyBounds, ClientGone, body_parts
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.responses import binary
from outrider.monitor.http.routes import change, source_of, view
from outrider.monitor.intake.arrow_messages import Inflation, bad, check_decoded, check_messages, check_schema
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sections import LimitSettings
from outrider.monitor.views.service import Service

ARROW = "application/vnd.apache.arrow.stream"
BEHAVIORAL = "behavioral test"
"""Begin of the source of failed cases."""
_POLL_S = 0.05


def _storable(text: str) -> str:
    if text.isdecimal() and int(text[:20]) >= 2**63:
        raise ValueError("number below 2**63 expected")
    return text


Selector: TypeAlias = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_storable)]
"""A version by its number, a tag, a time or ``newest``."""


class CommitRequest(RequestBody):
    """Request for a dataset version of flagged and labelled records."""

    model: str
    source: Literal["flags"] = Field(alias="from")


class DatasetChanges(TypedDict):
    """Numbers of rows that a version changed."""

    added: int
    relabelled: int
    removed: int


class DatasetManifest(TypedDict):
    """Columns, changes and validation result of a dataset version."""

    columns: dict[str, str]
    bytes: int
    """Size of the files that hold its rows."""
    changes: DatasetChanges
    erased: NotRequired[int]
    """Rows that were erased from it."""
    unfit: NotRequired[dict[str, str]]
    """Columns that no model reads, null where the values did not fit, with the reason."""
    counts: RowCounts
    """Rows by part, source of the label and assertion."""
    validation: dict[str, Any]
    labels: NotRequired[LabelAccount]
    """Of a version of flagged and labelled records: where every label went."""
    leaks: NotRequired[LeakReport]
    """Leaks and repeated rows that were found at the commit, the first pairs by id."""


DATASET = FieldsOf(
    datasets.Version, "DatasetVersion", times=True, without=("manifest", "arrow_schema", "state")
)
DatasetFacts: TypeAlias = Annotated[datasets.Version, DATASET]
_DETAIL = dataclasses.replace(
    DATASET, name="DatasetDetail", more={"tags": list[str], "manifest": DatasetManifest}
)
_COMMITTED = dataclasses.replace(
    DATASET, name="CommittedDataset", more={"job": str, "labels": LabelAccount | None}
)
DatasetVersions: TypeAlias = Annotated[
    list[DatasetFacts], Listed("datasets", "DatasetVersions", "Versions of datasets.")
]


RowProvenance: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(datasets.Provenance, "RowProvenance", more={"flags": list[datasets.RowFlag]}),
]
RowDifference: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        datasets.RowChange,
        "RowDifference",
        more={"before": RowProvenance | None, "after": RowProvenance | None, "reason": str},
    ),
]
DatasetDiff: TypeAlias = Annotated[
    dict[str, Any], FieldsOf(datasets.Diff, "DatasetDiff", more={"rows": list[RowDifference]})
]
DatasetRows: TypeAlias = Annotated[
    list[RowProvenance], Listed("rows", "DatasetRows", "Provenance of every row of a dataset version.")
]


class PendingCommit(TypedDict):
    """A commit that takes longer than the request waited."""

    job: str
    status: str


@view("/v1/datasets", scope="read", tag="datasets")
def list_datasets(service: Service, model: str | None = None) -> DatasetVersions:
    """Every version of every dataset."""
    with service.engine.connect() as connection:
        found = datasets.all_versions(connection)
    return [version for version in found if model in (None, version.model)]


@view("/v1/datasets/{name}/versions/{number}", scope="read", tag="datasets")
def get_dataset(service: Service, name: str, number: Selector) -> Annotated[dict[str, Any], _DETAIL]:
    """Dataset version with its columns, changes and validation result."""
    with service.engine.connect() as connection:
        found = find_version(connection, name, number)
        tags = tags_of(connection, found)
    manifest = {key: value for key, value in found.manifest.items() if key != "files"}
    return _DETAIL.body(found, tags=tags, manifest=manifest | {"bytes": found.bytes})


@view("/v1/datasets/{name}/versions/{number}/provenance", scope="read", tag="datasets")
def get_provenance(service: Service, name: str, number: Selector) -> DatasetRows:
    """Record, judged model version, flags, label, reviewer, weight and part of every row."""
    with service.engine.connect() as connection:
        found = find_version(connection, name, number)
        rows = datasets.provenance(connection, found)
    return [row.to_dict() for row in rows]


@view(
    "/v1/datasets/{name}/versions/{number}/rows",
    scope="read",
    tag="datasets",
    response_class=Response,
    responses=binary(ARROW),
)
def get_rows(
    service: Service,
    name: str,
    number: Selector,
    part: Literal["train", "held_out"] | None = None,
    column: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies it
    provenance: bool = False,
) -> Response:
    """The rows as an Arrow IPC stream, sent as they are read, with their provenance on request.

    ``column``, repeated, for some columns.
    """
    with service.engine.connect() as connection:
        found = find_version(connection, name, number)
        rows = scan(connection, service.objects, found, part=part, columns=column or None)
        origins = datasets.provenance(connection, found) if provenance else None
    if origins is None:
        return StreamingResponse(ipc_stream(rows.schema, rows), media_type=ARROW)
    columns = _provenance_columns(origins, part)
    schema = pa.schema([*rows.schema, *columns.schema], rows.schema.metadata)
    return StreamingResponse(ipc_stream(schema, _beside(rows, columns)), media_type=ARROW)


@view("/v1/datasets/{name}/diff", scope="read", tag="datasets")
def get_diff(
    service: Service,
    name: str,
    old: Selector,
    new: Selector,
    limit: Annotated[int, Query(ge=0, le=10_000)] = 0,
) -> DatasetDiff:
    """Ids of the rows that differ between two versions.

    Of ``limit`` of them provenance, labels, columns that differ, and the reason.
    """
    with service.engine.connect() as connection:
        before, after = (find_version(connection, name, number) for number in (old, new))
        found = datasets.diff(connection, service.objects, before, after, limit=limit)
        why = reasons(connection, max(before, after, key=lambda one: one.number), found.rows)
    kinds = {"added": found.added, "removed": found.removed, "changed": found.changed}
    rows = [row.to_dict() | {"reason": reason} for row, reason in zip(found.rows, why, strict=True)]
    return {**kinds, "rows": rows}


async def _body_of(request: Request) -> AsyncIterator[BinaryIO]:
    settings = source_of(request, Service).settings
    limits = settings.limits
    settings.data_folder.mkdir(parents=True, exist_ok=True)
    bounds = BodyBounds(limits.dataset_bytes, limits.ratio, "limits.dataset_bytes")
    # Without a name: whatever ends the process, nothing of it stays.
    with tempfile.TemporaryFile(dir=settings.data_folder) as file:
        try:
            async for part in body_parts(request.receive, dict(request.scope["headers"]), bounds):
                _check_disk(settings)
                await asyncio.to_thread(file.write, part)
        except ClientGone:
            raise ProblemError(problem(400, "the connection closed before the body was complete")) from None
        file.flush()
        yield file


@change(
    "POST /v1/datasets/{name}/versions",
    scope="promote",
    tag="datasets",
    status_code=201,
    responses={202: {"model": PendingCommit, "description": "The job is still at it"}},
    response_model=declared(Annotated[dict[str, Any], _COMMITTED]),
)
def commit_version(
    service: Service,
    name: str,
    request: Request,
    response: Response,
    body: Annotated[BinaryIO, Depends(_body_of)],
    model: str | None = None,
    source: str = "import",
    part: Literal["train", "held_out"] = "train",
    wait_s: Annotated[float, Query(ge=0, le=300)] = 120.0,
) -> dict[str, Any]:
    """Commit an Arrow table (``?model=``), or what was flagged and labelled.

    The latter takes JSON ``{"model": …, "from": "flags"}``. 201 with the version; 202 with the job when
    it takes longer than ``wait_s``; 422 with the reasons when validation refuses it.
    """
    limits = service.settings.limits
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    params: dict[str, object] = {}
    if kind == "application/json":
        model = _flags_of(name, _small(body, limits.request_bytes))
        service.model(model)
    else:
        if model is None:
            raise ProblemError(problem(422, "?model= is needed beside an Arrow body", field="model"))
        service.model(model)
        try:
            check_dataset_name(name)
        except ValueError as error:
            raise ProblemError(problem(422, str(error), field="name")) from None
        _check_arrow(body, limits)
        _check_place(service.settings, name, source, part)
        body.seek(0)
        params = {"dataset": name, "object": service.objects.put_file(body), "source": source, "part": part}
    with write(service.engine) as connection:
        job = jobs.add(connection, model=model, kind="dataset", params=params, now_us=now_us())
    found = _wait(service.engine, job, wait_s)
    if found.status in OPEN:
        response.status_code = 202
        return {"job": job, "status": found.status}
    return _COMMITTED.body(_outcome(service.engine, found), job=job, labels=found.result.get("labels"))


def _provenance_columns(origins: list[datasets.Provenance], part: str | None) -> pa.Table:
    kinds = {"label_seq": pa.int64(), "label_row": pa.int64(), "weight": pa.float64()}
    columns = {}
    for entry in dataclasses.fields(datasets.Provenance):
        if entry.name != "record_id":  # their id
            values = [getattr(origin, entry.name) for origin in origins if part in (None, origin.part)]
            columns[f"provenance.{entry.name}"] = pa.array(values, kinds.get(entry.name, pa.string()))
    return pa.table(columns)


def _beside(batches: Iterable[pa.RecordBatch], columns: pa.Table) -> Iterator[pa.RecordBatch]:
    at = 0
    for batch in batches:
        table = pa.Table.from_batches([batch])
        for name in columns.column_names:
            table = table.append_column(name, columns.column(name).slice(at, batch.num_rows))
        at += batch.num_rows
        yield from table.combine_chunks().to_batches()


def _check_place(settings: Settings, name: str, source: str, part: str) -> None:
    """Refuse to learn from rows that candidates are judged on, or to judge on cases that are learned."""
    if not source.startswith(BEHAVIORAL):
        return
    judged_on = {name_of(one) for own in settings.models.values() for one in own.gate.judging}
    if part != "train" or name in judged_on:
        detail = (
            f"failed cases are learned from; {name!r} is held out to judge candidates: name another dataset"
        )
        raise ProblemError(problem(422, detail, field="name"))
    if name in {dataset_of(model) for model in settings.models}:
        detail = f"{name!r} collects flagged and labelled records: name another dataset"
        raise ProblemError(problem(422, detail, field="name"))


def _flags_of(name: str, body: bytes) -> str:
    try:
        commit = CommitRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ProblemError(problem(422, f"{field or 'body'}: {first['msg']}", field=field)) from None
    if name != dataset_of(commit.model):
        detail = f"flagged records of {commit.model} go to dataset {dataset_of(commit.model)!r}, got {name!r}"
        raise ProblemError(problem(422, detail, field="name"))
    return commit.model


def _outcome(engine: Engine, found: JobRow) -> datasets.Version:
    if found.status != "done":
        raise ProblemError(problem(422, str(found.result.get("error", "it failed")), job=found.id))
    if "number" not in found.result:
        account: LabelAccount = found.result["labels"]
        raise ProblemError(
            problem(
                409,
                f"{found.model} has no new flagged and labelled record; {'; '.join(account_words(account))}",
                job=found.id,
                labels=account,
            )
        )
    with engine.connect() as connection:
        return datasets.get(connection, found.result["dataset"], found.result["number"])


def _wait(engine: Engine, job: str, seconds: float) -> JobRow:
    deadline = time.monotonic() + seconds
    while True:
        with engine.connect() as connection:
            found = jobs.get(connection, job)
        if found.status not in OPEN or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_S)


def _check_disk(settings: Settings) -> None:
    least = settings.storage.min_free_bytes
    if shutil.disk_usage(settings.data_folder).free < least:
        detail = f"fewer than {least} bytes are free on the disk (storage.min_free_bytes)"
        raise ProblemError(problem(507, detail, headers={"retry-after": "60"}))


def _small(body: BinaryIO, most: int) -> bytes:
    body.seek(0)
    content = body.read(most + 1)
    if len(content) > most:
        detail = f"JSON of more than {most} bytes (limits.request_bytes); a table is sent as Arrow"
        raise ProblemError(problem(413, detail))
    return content


def _check_arrow(body: BinaryIO, limits: LimitSettings) -> None:
    """Refuse a body that is no table, or too large a one, before unpacking it."""
    most, decoded = limits.dataset_bytes, 0
    try:
        stream = memoryview(mmap.mmap(body.fileno(), 0, access=mmap.ACCESS_READ))
        check_messages(stream, Inflation(most, limits.ratio))
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:  # sliced: lengths it states take no memory
            check_schema(reader.schema)
            for batch in reader:
                batch.validate(full=True)
                decoded = check_decoded(batch, decoded, most, "limits.dataset_bytes")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise bad(f"not an Arrow IPC stream: {str(error).splitlines()[0]}") from None


TagFacts: TypeAlias = Annotated[Tag, FieldsOf(Tag, "DatasetTag", times=True)]
DatasetTags: TypeAlias = Annotated[list[TagFacts], Listed("tags", "DatasetTags", "Tags of a dataset.")]


class TagRequest(RequestBody):
    """A tag for a dataset version, taken from another where ``moves``."""

    tag: str
    version: Selector
    moves: bool = False


@view("/v1/datasets/{name}/tags", scope="read", tag="datasets")
def get_tags(service: Service, name: str) -> DatasetTags:
    """Tags of a dataset with the versions that they name."""
    with service.engine.connect() as connection:
        references.find_version(connection, name)
        return references.list_tags(connection, name)


@change("POST /v1/datasets/{name}/tags", scope="promote", tag="datasets")
def set_tag(service: Service, name: str, body: TagRequest) -> TagFacts:
    """Name a version; 409 where the tag names another one and ``moves`` is false."""
    try:
        with write(service.engine) as connection:
            return references.set_tag(
                connection, name, body.tag, body.version, moves=body.moves, now_us=now_us()
            )
    except TagTaken as error:
        raise ProblemError(problem(409, str(error), field="tag")) from None
    except ValueError as error:
        raise ProblemError(problem(422, str(error), field="tag")) from None


@change("POST /v1/datasets/{name}/tags/{tag}/remove", scope="promote", tag="datasets")
def remove_tag(service: Service, name: str, tag: str) -> TagFacts:
    """Remove a tag; the version that it named stays."""
    with write(service.engine) as connection:
        return references.remove_tag(connection, name, tag)
