"""Jobs of the trainer: the queue of retrainings and dataset versions."""

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from outrider.dataops.datasets.collect import dataset_of
from outrider.dataops.datasets.versions import Version, event_facts, newest
from outrider.dataops.models import registry as models
from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.state.improvement_tables import Job
from outrider.dataops.state.job_states import ENDED, OPEN
from outrider.dataops.state.tables import Cursor, table_of
from outrider.errors import NotFound, OutriderError

Kind = Literal["retrain", "dataset"]
KIND: Kind = "retrain"
WAITING = "waiting"
Lane = Literal["dataset", "gate", "training"]
"""Jobs of one lane never wait for those of another."""
ROLLING = "rolling comparison"
"""Trigger of a job that trains nothing and compares all versions."""
MAX_ATTEMPTS = 3
_JOB = table_of(Job)
_CURSOR = table_of(Cursor)


CANCELLED = "cancelled by"
"""Start of the note on a candidate whose job somebody has cancelled."""


class JobClosed(OutriderError):  # noqa: N818 - reads as the state it is
    """Somebody has closed the job meanwhile."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """Job as stored."""

    id: str
    model: str
    kind: Kind
    status: str
    stage: str
    params: dict[str, Any]
    result: dict[str, Any] = field(repr=False)
    attempts: int
    created_us: int
    started_us: int | None
    finished_us: int | None

    @property
    def candidate(self) -> str | None:
        """Version that the job made or judges."""
        found = self.result.get("candidate", self.params.get("candidate"))
        return None if found is None else str(found)

    @property
    def lane(self) -> Lane:
        if self.kind == "dataset":
            return "dataset"
        return "gate" if self.candidate is not None or self.params.get("trigger") == ROLLING else "training"


def add(
    connection: Connection,
    *,
    model: str,
    kind: Kind,
    params: Mapping[str, object],
    now_us: int,
) -> str:
    """Queue a job on the blocks that the champion's cursor has passed.

    A retraining whose ``params`` name a ``candidate`` trains nothing: that challenger goes before the
    gate.
    """
    job = f"job_{uuid.uuid4().hex}"
    params = {**params, "upto_seq": champion_cursor(connection, model)}
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


def champion_cursor(connection: Connection, model: str) -> int | None:
    mine = _CURSOR.c.model == model, _CURSOR.c.slot == "champion"
    return connection.scalar(select(_CURSOR.c.seq).where(*mine))


def take_newest(connection: Connection, job: str) -> JobRow:
    """Let a job begin with the blocks that are judged by now."""
    found = get(connection, job)
    params = {**found.params, "upto_seq": champion_cursor(connection, found.model)}
    connection.execute(update(_JOB).where(_JOB.c.id == job).values(params=params))
    return get(connection, job)


def request_training(
    connection: Connection,
    job: JobRow,
    version: Version | None,
    *,
    service: str,
    targets: Sequence[WebhookTarget],
    now_us: int,
) -> None:
    """Enqueue ``retrain.requested`` in the transaction that commits the dataset version, behind its
    own event. Jobs that ask nobody to train enqueue nothing."""
    if (job.kind == "retrain" and "candidate" not in job.params) or job.params.get("trigger"):
        version = version or newest(connection, dataset_of(job.model))
        dataset = None if version is None else event_facts(version, service)
        data = {"job": job.id, "model": job.model, "params": job.params, "dataset": dataset}
        enqueue(connection, "retrain.requested", data, targets=targets, now_us=now_us + 1)


def due(
    connection: Connection,
    *,
    running: Collection[JobRow] = (),
    most: Mapping[Lane, int] = MappingProxyType({}),
) -> JobRow | None:
    """Next job: a crashed one, else the oldest queued, datasets first.

    A model has one job in each lane, and a retraining waits for the dataset jobs of its model that were
    queued before it.
    """
    taken = Counter(job.lane for job in running)
    busy = {(job.model, job.lane) for job in running}
    alive = {job.id for job in running}
    before = {job.model: job.created_us for job in running if job.kind == "dataset"}
    query = select(_JOB).where(_JOB.c.status.in_(("running", "queued")))
    for row in connection.execute(
        query.order_by(_JOB.c.status.desc(), _JOB.c.kind, _JOB.c.created_us, _JOB.c.id)
    ):
        job = JobRow(**row._mapping)
        if job.id in alive:
            continue
        model, lane = job.model, job.lane
        is_early = job.kind == "retrain" and job.created_us > before.get(model, job.created_us)
        is_full = lane in most and taken[lane] >= most[lane]
        if not is_early and not is_full and (model, lane) not in busy:
            return job
        busy.add((model, lane))  # those behind it keep their order
        if job.kind == "dataset":
            before.setdefault(model, job.created_us)
    return None


def claim(
    connection: Connection,
    *,
    now_us: int,
    targets: Sequence[WebhookTarget] = (),
    running: Collection[JobRow] = (),
    most: Mapping[Lane, int] = MappingProxyType({}),
) -> JobRow | None:
    """Claim the next job; close jobs that crashed too often."""
    job = due(connection, running=running, most=most)
    if job is None:
        return None
    if job.attempts >= MAX_ATTEMPTS:
        error = f"given up: its process died in stage {job.stage!r} in each of {job.attempts} attempts"
        lines = job.result.get("log", ())
        fail(connection, job.id, error, targets=targets, now_us=now_us, log=lines)
        return claim(connection, now_us=now_us, targets=targets, running=running, most=most)
    connection.execute(
        update(_JOB)
        .where(_JOB.c.id == job.id)
        .values(status="running", attempts=job.attempts + 1, started_us=job.started_us or now_us)
    )
    return get(connection, job.id)


def waiting(connection: Connection) -> list[JobRow]:
    query = select(_JOB).where(_JOB.c.status == WAITING).order_by(_JOB.c.created_us, _JOB.c.id)
    return [JobRow(**row._mapping) for row in connection.execute(query)]


def is_busy(connection: Connection, model: str) -> bool:
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
    """Put a job back that was interrupted on purpose; the attempt does not count."""
    connection.execute(
        update(_JOB)
        .where(_JOB.c.id == job, _JOB.c.status == "running")
        .values(status="queued", attempts=_JOB.c.attempts - 1)
    )


def wait(
    connection: Connection, job: str, thing: str, *, until_us: int, result: Mapping[str, object]
) -> None:
    waits = {"for": thing, "until_us": until_us}
    values = {"status": WAITING, "attempts": 0, "result": {**result, "waits": waits}}
    _change(connection, job, values)


def go_on(connection: Connection, job: str, result: Mapping[str, object]) -> None:
    waits = _JOB.c.id == job, _JOB.c.status == WAITING
    connection.execute(update(_JOB).where(*waits).values(status="queued", result=dict(result)))


def note_waiting(connection: Connection, job: str, findings: Mapping[str, object]) -> bool:
    """Add findings to a waiting job; False for any other."""
    found = get(connection, job)
    waits = _JOB.c.id == job, _JOB.c.status == WAITING
    values = {"result": {**found.result, **findings}}
    return bool(connection.execute(update(_JOB).where(*waits).values(**values)).rowcount)


def resume(connection: Connection, job: str) -> None:
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
    found = get(connection, job)
    if found.status in ENDED:
        return
    told: dict[str, object] = {"error": error, **({"log": list(log)} if log else {})}
    if found.kind == "retrain":
        data = {"job": job, "model": found.model, "stage": found.stage, **told}
        enqueue(connection, "retrain.failed", data, targets=targets, now_us=now_us)
    if "candidate" not in found.params:  # what was there before the job stays
        _drop_candidate(connection, found, "failed", error, now_us=now_us)
    _close(connection, job, "failed", {**found.result, **told}, now_us=now_us)


def cancel(connection: Connection, job: str, *, by: str, now_us: int) -> JobRow:
    found = get(connection, job)
    if found.status in ENDED:
        raise JobClosed(f"{job} is {found.status}: only an open job can be cancelled")
    why = f"{CANCELLED} {by}"
    _drop_candidate(connection, found, "retired", why, now_us=now_us)
    _close(connection, job, "cancelled", {**found.result, "error": why}, now_us=now_us)
    return get(connection, job)


def retry(connection: Connection, job: str, *, now_us: int) -> JobRow:
    """Queue a new job that goes on behind the last finished stage of a failed or cancelled one."""
    found = get(connection, job)
    if found.status not in ("failed", "cancelled"):
        raise JobClosed(f"{job} is {found.status}: only a failed or cancelled job can be tried again")
    params = {**found.params, "retry_of": found.params.get("retry_of", job)}
    if params.get("trigger") != ROLLING:
        params.pop("trigger", None)  # a person asks for this one
    made = add(connection, model=found.model, kind=found.kind, params=params, now_us=now_us)
    kept = {
        name: value
        for name, value in found.result.items()
        if name not in ("error", "log", "waits", "progress")
    }
    if found.candidate is not None:
        candidate = models.get(connection, found.model, found.candidate)
        if candidate.status == "failed" or (
            candidate.status == "retired" and candidate.note.startswith(CANCELLED)
        ):
            note = f"its job is tried again as {made}"
            models.set_status(
                connection, found.model, candidate.version, "challenger", now_us=now_us, note=note
            )
    connection.execute(update(_JOB).where(_JOB.c.id == made).values(stage=found.stage, result=kept))
    return get(connection, made)


def keep_log(connection: Connection, job: str, lines: Sequence[str]) -> None:
    found = get(connection, job)
    if found.status == "running":
        note(connection, job, stage=found.stage, result={**found.result, "log": list(lines)})


def note(connection: Connection, job: str, *, stage: str, result: Mapping[str, object]) -> None:
    _change(connection, job, {"stage": stage, "result": dict(result)})


def finish(
    connection: Connection, job: str, status: str, result: Mapping[str, object], *, now_us: int
) -> None:
    """Close a running job, or raise :class:`JobClosed`, after which nothing of the transaction may stay."""
    _change(connection, job, {"status": status, "result": dict(result), "finished_us": now_us})


def _change(connection: Connection, job: str, values: Mapping[str, object]) -> None:
    running = _JOB.c.id == job, _JOB.c.status == "running"
    if not connection.execute(update(_JOB).where(*running).values(**values)).rowcount:
        raise JobClosed(f"{job} is {get(connection, job).status} by now")


def _close(
    connection: Connection, job: str, status: str, result: Mapping[str, object], *, now_us: int
) -> None:
    connection.execute(
        update(_JOB).where(_JOB.c.id == job).values(status=status, result=dict(result), finished_us=now_us)
    )


def _drop_candidate(connection: Connection, job: JobRow, status: str, why: str, *, now_us: int) -> None:
    """Take a job's candidate out of service, unless somebody has decided on it meanwhile."""
    if job.candidate is None:
        return
    candidate = models.get(connection, job.model, job.candidate)
    if candidate.status == "challenger" and candidate.note != models.NAMED:
        models.set_status(connection, job.model, candidate.version, status, now_us=now_us, note=why)


def get(connection: Connection, job: str) -> JobRow:
    row = connection.execute(select(_JOB).where(_JOB.c.id == job)).first()
    if row is None:
        raise NotFound(f"no job {job!r}")
    return JobRow(**row._mapping)


def count_ended(connection: Connection, kind: Kind) -> list[tuple[str, str, int]]:
    query = select(_JOB.c.model, _JOB.c.status, func.count()).where(*_ended(kind))
    rows = connection.execute(query.group_by(_JOB.c.model, _JOB.c.status))
    return [(model, status, count) for model, status, count in rows]


def ended_since(connection: Connection, kind: Kind, after_us: int) -> list[JobRow]:
    query = select(_JOB).where(*_ended(kind), _JOB.c.finished_us > after_us).order_by(_JOB.c.finished_us)
    return [JobRow(**row._mapping) for row in connection.execute(query)]


def recent(
    connection: Connection,
    *,
    kind: Kind | None = None,
    model: str | None = None,
    limit: int = 50,
    before_us: int | None = None,
    statuses: Sequence[str] | None = None,
) -> list[JobRow]:
    query = select(_JOB).order_by(_JOB.c.created_us.desc(), _JOB.c.id).limit(limit)
    if before_us is not None:
        query = query.where(_JOB.c.created_us < before_us)
    if statuses is not None:
        query = query.where(_JOB.c.status.in_(statuses))
    if kind is not None:
        query = query.where(_JOB.c.kind == kind)
    if model is not None:
        query = query.where(_JOB.c.model == model)
    return [JobRow(**row._mapping) for row in connection.execute(query)]


def _ended(kind: Kind) -> tuple[ColumnElement[bool], ...]:
    return _JOB.c.kind == kind, _JOB.c.status.in_(ENDED)
