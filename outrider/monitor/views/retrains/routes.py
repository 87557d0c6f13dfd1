"""Routes of retrainings and of the gate's verdicts, and their page."""

from typing import Annotated, Any, NotRequired, TypeAlias

from fastapi import Query, Request
from pydantic import Field
from sqlalchemy import Connection
from starlette.responses import Response

from outrider.dataops.datasets.references import open_version
from outrider.dataops.improvement import gate, jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.improvement.verdicts import VerdictRow, list_verdicts
from outrider.dataops.models import lineage
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write
from outrider.dataops.triggers.firing import note_manual
from outrider.monitor.http.common import RequestBody
from outrider.monitor.http.declared import FieldsOf, Listed
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import change, page, view
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.queries import improvement
from outrider.monitor.views.jobs.routes import JobFacts
from outrider.monitor.views.service import Service
from outrider.monitor.views.triggers.reader import triggers_of
from outrider.monitor.web.bounds_chart import worse_chart

from . import stories

TIME_DIGITS = 18
Retrains: TypeAlias = Annotated[
    list[JobFacts], Listed("retrains", "Retrains", "Retraining jobs, newest first.")
]


GateEvidence: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        gate.Evidence,
        "GateEvidence",
        more={
            "policy": Annotated[dict[str, Any], FieldsOf(gate.Policy, "GatePolicy")],
            "passed": bool,
            "undecided": bool,
            "job": NotRequired[str],
        },
    ),
]
_VERDICT = FieldsOf(
    VerdictRow,
    "GateDecision",
    times=True,
    without=("status",),
    also=("outcome",),
    more={"evidence": GateEvidence},
)
GateDecisions: TypeAlias = Annotated[
    list[Annotated[VerdictRow, _VERDICT]],
    Listed("gates", "GateDecisions", "Verdicts of the promotion gate, newest first."),
]


class RetrainRequest(RequestBody):
    """Request for a retraining now. Omitted options are as in the configuration."""

    model: str
    candidate: str | None = None
    """A challenger that is there already: it is put before the gate, and nothing is trained."""
    dataset: str | None = None
    """Dataset version that a candidate made elsewhere was trained on, such as ``churn-flagged@3``."""
    job: str | None = None
    """Job of ``retrain.requested`` that the candidate answers."""
    repeat: str | None = None
    """Job whose training is done again from its record, to compare the digests; no version is made."""
    from_scratch: bool = False
    full: bool = False
    """All rows of the dataset are validated, not the new ones alone."""
    epochs: int | None = Field(default=None, ge=1)
    learning_rate: float | None = Field(default=None, gt=0)
    replay_ratio: float | None = Field(default=None, ge=0)
    batch_rows: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=0)


@view("/v1/retrains", scope="read", tag="retrains")
def list_retrains(
    service: Service, model: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> Retrains:
    """Retraining jobs, newest first."""
    with service.engine.connect() as connection:
        return jobs.recent(connection, kind="retrain", model=model, limit=limit)


@view("/v1/retrains/{job}", scope="read", tag="retrains")
def get_retrain(service: Service, job: str) -> JobFacts:
    """Job with its stage, seconds per stage, candidate and reasons."""
    with service.engine.connect() as connection:
        return jobs.get(connection, job)


@change("POST /v1/retrains", scope="promote", tag="retrains", status_code=202)
def request_retrain(service: Service, body: RetrainRequest, request: Request) -> JobFacts:
    """Queue a retraining."""
    known = service.model(body.model)
    if body.candidate is not None or body.repeat is not None:
        with service.engine.connect() as connection:
            _check_named(body, connection)
    elif body.dataset or body.job:
        detail = "dataset and job are those of a candidate that was made elsewhere: name it"
        raise ProblemError(problem(422, detail, field="candidate"))
    elif not known.is_trained_here and known.retrain.trainer != "external":
        detail = (
            f"{body.model} is not trained here: name a candidate, your code as retrain.trainer, or set "
            f"trainer = 'external' in [models.{body.model}.retrain] and train it elsewhere"
        )
        raise ProblemError(problem(409, detail, field="model"))
    params = body.model_dump(exclude={"model"}, exclude_none=True, exclude_defaults=True)
    with write(service.engine) as connection:
        if body.candidate is not None:
            learned = None if body.dataset is None else open_version(connection, body.dataset).id
            reported = lineage.report(
                connection,
                body.model,
                body.candidate,
                dataset=learned,
                job=body.job,
                now_us=now_us(),
            )
            params |= reported
        job = jobs.add(connection, model=body.model, kind="retrain", params=params, now_us=now_us())
        if body.candidate is None and body.repeat is None:
            by = visitor_of(request).name
            note_manual(connection, body.model, by=by, job=job, now_us=now_us())
        return jobs.get(connection, job)


@view("/v1/gates", scope="read", tag="retrains")
def list_gates(
    service: Service, model: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> GateDecisions:
    """Verdicts of the promotion gate with reasons and evidence, newest first."""
    with service.engine.connect() as connection:
        return list_verdicts(connection, model, limit=limit)


@page("/m/{model}/retrains", scope="read")
def retrains_page(service: Service, request: Request, model: str, before: str = "") -> Response:
    before_us = int(before) if before.isdecimal() and len(before) <= TIME_DIGITS else None
    told, older = stories.list_stories(service.engine, model, before_us=before_us)
    context = {
        "stories": told,
        "older": older,
        "is_newest": before_us is None,
        "champions": stories.champion_line(service.engine, model, now_us=now_us()),
        "watches": improvement.list_watches(service.engine, model) if before_us is None else [],
        "triggers": triggers_of(service, model) if before_us is None else None,
        "chart": worse_chart,
    }
    return service.frame.page(request, "retrains.html", model, "/retrains", context, refresh=True)


def _check_repeatable(body: RetrainRequest, job: JobRow) -> None:
    """Refuse to repeat a job of another model, or one that keeps no record of a training."""
    if job.model != body.model:
        raise ProblemError(problem(422, f"{job.id} trained {job.model}, not {body.model}", field="repeat"))
    if "digest" not in job.result.get("run", {}):
        detail = (
            f"{job.id} has no record of a training that ended ({job.status}); name one that trained a version"
        )
        raise ProblemError(problem(409, detail, field="repeat"))
    own = body.model_dump(exclude={"model", "repeat"}, exclude_none=True, exclude_defaults=True)
    if own:
        detail = (
            f"{next(iter(own))}: a repetition takes all settings from the record of {job.id}; leave it out"
        )
        raise ProblemError(problem(422, detail, field=next(iter(own))))


def _check_named(body: RetrainRequest, connection: Connection) -> None:
    """Refuse a job or candidate that is none for this request."""
    if body.repeat is not None:
        _check_repeatable(body, jobs.get(connection, body.repeat))
        return
    _check_candidate(body, models.get(connection, body.model, str(body.candidate)))


def _check_candidate(body: RetrainRequest, found: models.Model) -> None:
    if found.status != "challenger":
        detail = f"{found.id} is {found.status}: only a challenger can be put before the gate"
        raise ProblemError(problem(409, detail, field="candidate"))
    if body.full:
        detail = "full validates the rows to train on: nothing is trained for a candidate"
        raise ProblemError(problem(422, detail, field="full"))
