"""``/v1/jobs``: jobs of the trainer, cancelled and tried again."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from sqlalchemy import Connection, Engine
from typing_extensions import TypedDict

from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobClosed, JobRow, Kind
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.job_states import ENDED, OPEN
from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.settings.config import Settings

from .retrains import JOB, JobFacts


class Jobs(TypedDict):
    """Jobs of the trainer, newest first."""

    jobs: list[JobFacts]


def job_routes(engine: Engine, settings: Settings) -> APIRouter:
    """Routes about jobs of every kind."""
    router = APIRouter(prefix="/v1", tags=["retrains"])

    @router.get("/jobs")
    def list_jobs(
        model: str | None = None,
        kind: Kind | None = None,
        state: Literal["open", "ended", "all"] = "all",
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    ) -> Declared[Jobs]:
        """Retrainings and dataset versions in the making, newest first."""
        if model is not None:
            known_model(settings, model)
        statuses = {"open": OPEN, "ended": ENDED, "all": None}[state]
        with engine.connect() as connection:
            found = jobs.recent(connection, kind=kind, model=model, limit=limit, statuses=statuses)
        return {"jobs": [JOB.body(job) for job in found]}

    @router.get("/jobs/{job}")
    def get_job(job: str) -> Declared[JobFacts]:
        """Job with its stage, progress, seconds per stage, and error with the last lines of its log."""
        with engine.connect() as connection:
            return JOB.body(jobs.get(connection, job))

    @router.post("/jobs/{job}/cancel")
    def cancel_job(job: str, request: Request) -> Declared[JobFacts]:
        """Cancel an open job. Its process ends within seconds; a candidate that it made is retired."""
        by = visitor_of(request).name
        return _changed(engine, lambda connection: jobs.cancel(connection, job, by=by, now_us=now_us()))

    @router.post("/jobs/{job}/retry", status_code=202)
    def retry_job(job: str) -> Declared[JobFacts]:
        """Queue a new job behind the last finished stage of one that failed or was cancelled."""
        return _changed(engine, lambda connection: jobs.retry(connection, job, now_us=now_us()))

    return router


def _changed(engine: Engine, change: Callable[[Connection], JobRow]) -> dict[str, Any]:
    try:
        with write(engine) as connection:
            return JOB.body(change(connection))
    except JobClosed as error:
        raise ProblemError(problem(409, str(error), field="job")) from error
