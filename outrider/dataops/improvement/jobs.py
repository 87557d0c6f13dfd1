"""Jobs of the trainer: the queue of retrainings and dataset versions."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from outrider.dataops.datasets.collect import dataset_of
from outrider.dataops.datasets.versions import Version, newest, told
from outrider.dataops.models import registry as models
from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.state.improvement_tables import Job
from outrider.dataops.state.tables import Cursor, table_of
from outrider.errors import NotFound

Kind = Literal["retrain", "dataset"]
KIND: Kind = "retrain"
WAITING = "waiting"
"""Status of a job that waits for something from outside, without a process."""
OPEN = ("queued", "running", WAITING)
ENDED = ("done", "refused", "undecided", "failed")
"""Statuses of closed jobs."""
ROLLING = "rolling comparison"
"""Trigger of a job that trains nothing and compares all versions."""
MAX_ATTEMPTS = 3
_JOB = table_of(Job)
_CURSOR = table_of(Cursor)


@dataclass(frozen=True, slots=True)
class JobRow:
    """Job as stored."""

    id: str
    model: str
    kind: str
    status: str
    stage: str
    params: dict[str, Any]
    result: dict[str, Any] = field(repr=False)
    attempts: int
    created_us: int
    started_us: int | None
    finished_us: int | None


def add(
    connection: Connection,
    *,
    model: str,
    kind: Kind,
    params: Mapping[str, object],
    now_us: int,
) -> str:
    """Queue a job on the blocks that the champion's cursor has passed.

    A retraining whose ``params`` name a ``candidate`` trains nothing: that challenger is put before the gate.
    """
    job = f"job_{uuid.uuid4().hex}"
    upto_seq = connection.scalar(
        select(_CURSOR.c.seq).where(_CURSOR.c.model == model, _CURSOR.c.slot == "champion")
    )
    params = {**params, "upto_seq": upto_seq}
    connection.execute(
        insert(_JOB).values(
            id=job,
            model=model,
            kind=kind,
            status="queued",
            stage="",
            params=params,
            result={},
            attempts=0,
            created_us=now_us,
        )
    )
    return job


def request_training(
    connection: Connection,
    job: JobRow,
    version: Version | None,
    *,
    service: str,
    targets: Sequence[WebhookTarget],
    now_us: int,
) -> None:
    """Enqueue ``retrain.requested`` with the dataset version to learn from.

    In the transaction that commits the version, and behind its own event. Jobs that ask nobody to train
    enqueue nothing.
    """
    if (job.kind == "retrain" and "candidate" not in job.params) or job.params.get("trigger"):
        version = version or newest(connection, dataset_of(job.model))
        dataset = None if version is None else told(version, service)
        data = {"job": job.id, "model": job.model, "params": job.params, "dataset": dataset}
        enqueue(connection, "retrain.requested", data, targets=targets, now_us=now_us + 1)


def claim(connection: Connection, *, now_us: int, targets: Sequence[WebhookTarget] = ()) -> JobRow | None:
    """Claim a job that crashed, else the oldest queued, datasets first.

    One that crashed too often is closed as failed.
    """
    row = connection.execute(
        select(_JOB)
        .where(_JOB.c.status.in_(("running", "queued")))
        .order_by(_JOB.c.status.desc(), _JOB.c.kind, _JOB.c.created_us, _JOB.c.id)
        .limit(1)
    ).first()
    if row is None:
        return None
    job = JobRow(**row._mapping)
    if job.attempts >= MAX_ATTEMPTS:
        error = f"given up: the trainer died in stage {job.stage!r} in each of {job.attempts} attempts"
        fail(connection, job.id, error, targets=targets, now_us=now_us)
        return claim(connection, now_us=now_us, targets=targets)
    connection.execute(
        update(_JOB)
        .where(_JOB.c.id == job.id)
        .values(status="running", attempts=job.attempts + 1, started_us=job.started_us or now_us)
    )
    return get(connection, job.id)


def is_waiting(connection: Connection) -> bool:
    """True where a job waits."""
    query = select(_JOB.c.id).where(_JOB.c.status.in_(("running", "queued"))).limit(1)
    return connection.scalar(query) is not None


def is_busy(connection: Connection, model: str) -> bool:
    """True where a retraining of the model is queued or runs."""
    is_open = _JOB.c.status.in_(OPEN)
    query = select(_JOB.c.id).where(_JOB.c.model == model, is_open, _JOB.c.kind == KIND).limit(1)
    return connection.scalar(query) is not None


def last_look(connection: Connection, model: str) -> int:
    """Block of the newest label at the last look; -1 without."""
    looked = _JOB.c.model == model, _JOB.c.params["trigger"].as_string() == ROLLING
    newest = select(func.max(_JOB.c.params["label_seq"].as_integer())).where(*looked)
    found = connection.scalar(newest)
    return -1 if found is None else int(found)


def requeue(connection: Connection, job: str) -> None:
    """Put a job interrupted on purpose back; the attempt does not count."""
    connection.execute(
        update(_JOB).where(_JOB.c.id == job).values(status="queued", attempts=_JOB.c.attempts - 1)
    )


def waiting(connection: Connection) -> list[JobRow]:
    """Jobs that wait for something from outside, the oldest first."""
    query = select(_JOB).where(_JOB.c.status == WAITING).order_by(_JOB.c.created_us, _JOB.c.id)
    return [JobRow(**row._mapping) for row in connection.execute(query)]


def wait(
    connection: Connection, job: str, thing: str, *, until_us: int, result: Mapping[str, object]
) -> None:
    """Let a job wait for a thing from outside, such as a version, at most until then."""
    waits = {"for": thing, "until_us": until_us}
    values = {"status": WAITING, "attempts": 0, "result": {**result, "waits": waits}}
    connection.execute(update(_JOB).where(_JOB.c.id == job).values(**values))


def go_on(connection: Connection, job: str, result: Mapping[str, object]) -> None:
    """Queue a job that waited, with what it waited for."""
    connection.execute(
        update(_JOB)
        .where(_JOB.c.id == job, _JOB.c.status == WAITING)
        .values(status="queued", stage="train", result=dict(result))
    )


def note_waiting(connection: Connection, job: str, findings: Mapping[str, object]) -> bool:
    """Add findings to a job that waits; False where it does not any more."""
    found = get(connection, job)
    if found.status != WAITING:
        return False
    values = {"result": {**found.result, **findings}}
    connection.execute(update(_JOB).where(_JOB.c.id == job, _JOB.c.status == WAITING).values(**values))
    return True


def resume(connection: Connection, job: str) -> None:
    """Queue a job that waited: what it waited for is there, or its time is over."""
    connection.execute(update(_JOB).where(_JOB.c.id == job, _JOB.c.status == WAITING).values(status="queued"))


def fail(
    connection: Connection,
    job: str,
    error: str,
    *,
    targets: Sequence[WebhookTarget],
    now_us: int,
    log: Sequence[str] = (),
) -> None:
    """Close a job and its candidate as failed, with reason and event.

    Parameters
    ----------
    log
        Last lines that its process wrote.
    """
    found = get(connection, job)
    if found.status in ENDED:
        return
    told: dict[str, object] = {"error": error, **({"log": list(log)} if log else {})}
    if found.kind == "retrain":
        data = {"job": job, "model": found.model, "stage": found.stage, **told}
        enqueue(connection, "retrain.failed", data, targets=targets, now_us=now_us)
    if "candidate" in found.result and "candidate" not in found.params:
        candidate = models.get(connection, found.model, str(found.result["candidate"]))
        if candidate.status == "challenger":  # nobody has decided on it meanwhile
            models.set_status(connection, found.model, candidate.version, "failed", now_us=now_us, note=error)
    finish(connection, job, "failed", {**found.result, **told}, now_us=now_us)


def note(connection: Connection, job: str, *, stage: str, result: Mapping[str, object]) -> None:
    """Note a job's stage and its findings so far."""
    connection.execute(update(_JOB).where(_JOB.c.id == job).values(stage=stage, result=dict(result)))


def finish(
    connection: Connection, job: str, status: str, result: Mapping[str, object], *, now_us: int
) -> None:
    """Close a job with one of :data:`ENDED`."""
    connection.execute(
        update(_JOB).where(_JOB.c.id == job).values(status=status, result=dict(result), finished_us=now_us)
    )


def get(connection: Connection, job: str) -> JobRow:
    """Job of that id.

    Raises
    ------
    NotFound
        If there is none of that id.
    """
    row = connection.execute(select(_JOB).where(_JOB.c.id == job)).first()
    if row is None:
        raise NotFound(f"no job {job!r}")
    return JobRow(**row._mapping)


def count_ended(connection: Connection, kind: Kind) -> list[tuple[str, str, int]]:
    """Number of closed jobs of a kind by model and status."""
    query = select(_JOB.c.model, _JOB.c.status, func.count()).where(*_ended(kind))
    rows = connection.execute(query.group_by(_JOB.c.model, _JOB.c.status))
    return [(model, status, count) for model, status, count in rows]


def ended_since(connection: Connection, kind: Kind, after_us: int) -> list[JobRow]:
    """Jobs of a kind closed later than ``after_us``, in order."""
    query = select(_JOB).where(*_ended(kind), _JOB.c.finished_us > after_us).order_by(_JOB.c.finished_us)
    return [JobRow(**row._mapping) for row in connection.execute(query)]


def recent(
    connection: Connection,
    *,
    kind: Kind | None = None,
    model: str | None = None,
    limit: int = 50,
    before_us: int | None = None,
) -> list[JobRow]:
    """Jobs, newest first."""
    query = select(_JOB).order_by(_JOB.c.created_us.desc(), _JOB.c.id).limit(limit)
    if before_us is not None:
        query = query.where(_JOB.c.created_us < before_us)
    if kind is not None:
        query = query.where(_JOB.c.kind == kind)
    if model is not None:
        query = query.where(_JOB.c.model == model)
    return [JobRow(**row._mapping) for row in connection.execute(query)]


def _ended(kind: Kind) -> tuple[ColumnElement[bool], ...]:
    return _JOB.c.kind == kind, _JOB.c.status.in_(ENDED)
