"""Routes of jobs."""

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

from fastapi import Query, Request
from sqlalchemy import Connection, Engine
from starlette.responses import Response

from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobClosed, JobRow, Kind
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.job_states import ENDED, OPEN
from outrider.errors import NotFound
from outrider.monitor.http.declared import FieldsOf, Listed
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import change, form, view
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import Fields, back

JobFacts: TypeAlias = Annotated[JobRow, FieldsOf(JobRow, "Job", times=True)]
Jobs: TypeAlias = Annotated[list[JobFacts], Listed("jobs", "Jobs", "Jobs of the trainer, newest first.")]


@view("/v1/jobs", scope="read", tag="retrains")
def list_jobs(
    service: Service,
    model: str | None = None,
    kind: Kind | None = None,
    state: Literal["open", "ended", "all"] = "all",
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Jobs:
    """Retrainings and dataset versions in the making, newest first."""
    if model is not None:
        service.model(model)
    statuses = {"open": OPEN, "ended": ENDED, "all": None}[state]
    with service.engine.connect() as connection:
        return jobs.recent(connection, kind=kind, model=model, limit=limit, statuses=statuses)


@view("/v1/jobs/{job}", scope="read", tag="retrains")
def get_job(service: Service, job: str) -> JobFacts:
    """Job with its stage, progress, seconds per stage, and error with the last lines of its log."""
    with service.engine.connect() as connection:
        return jobs.get(connection, job)


@change("POST /v1/jobs/{job}/cancel", scope="promote", tag="retrains")
def cancel_job(service: Service, job: str, request: Request) -> JobFacts:
    """Cancel an open job. Its process ends within seconds; a candidate that it made is retired."""
    by = visitor_of(request).name
    return _changed(service.engine, lambda connection: jobs.cancel(connection, job, by=by, now_us=now_us()))


@change("POST /v1/jobs/{job}/retry", scope="promote", tag="retrains", status_code=202)
def retry_job(service: Service, job: str) -> JobFacts:
    """Queue a new job behind the last finished stage of one that failed or was cancelled."""
    return _changed(service.engine, lambda connection: jobs.retry(connection, job, now_us=now_us()))


def _changed(engine: Engine, change: Callable[[Connection], JobRow]) -> JobRow:
    try:
        with write(engine) as connection:
            return change(connection)
    except JobClosed as error:
        raise ProblemError(problem(409, str(error), field="job")) from error


@form("POST /m/{model}/jobs", scope="promote")
def job_form(service: Service, request: Request, model: str, form: Fields) -> Response:
    action, job = form.get("action", ""), form.get("job", "")
    if action not in ("cancel", "retry"):
        detail = f"cancel or retry expected, got {action[:20]!r}"
        raise ProblemError(problem(422, detail, field="action"))
    try:
        with write(service.engine) as connection:
            if jobs.get(connection, job).model != model:
                raise NotFound(f"model {model!r} has no job {job!r}")
            if action == "cancel":
                jobs.cancel(connection, job, by=visitor_of(request).name, now_us=now_us())
            else:
                jobs.retry(connection, job, now_us=now_us())
    except jobs.JobClosed as error:
        raise ProblemError(problem(409, str(error), field="job")) from error
    return back(form)
