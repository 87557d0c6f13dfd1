"""The API of retrainings and of the promotion gate's verdicts."""

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy import Engine, select

from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.tables import GateVerdict, table_of
from outrider.monitor.http.common import RequestBody, known_model, targets_of, timed
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.settings.config import Settings

_VERDICT = table_of(GateVerdict)


class RetrainRequest(RequestBody):
    """Request for a retraining now.

    Omitted options are as in the configuration.
    """

    model: str
    candidate: str | None = None
    """A challenger that is there already: it is put before the gate, and nothing is trained."""
    from_scratch: bool = False
    epochs: int | None = Field(default=None, ge=1)
    learning_rate: float | None = Field(default=None, gt=0)
    replay_ratio: float | None = Field(default=None, ge=0)
    batch_rows: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=0)


def add_retrains(router: APIRouter, engine: Engine, settings: Settings) -> None:
    """Add the routes."""
    targets = targets_of(settings)

    @router.get("/retrains", tags=["retrains"])
    def list_retrains(
        model: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 50
    ) -> dict[str, Any]:
        """Retraining jobs, newest first."""
        with engine.connect() as connection:
            found = jobs.recent(connection, kind="retrain", model=model, limit=limit)
        return {"retrains": [_job(job) for job in found]}

    @router.get("/retrains/{job}", tags=["retrains"])
    def get_retrain(job: str) -> dict[str, Any]:
        """Job with its stage, seconds per stage, candidate and reasons."""
        with engine.connect() as connection:
            return _job(jobs.get(connection, job))

    @router.post("/retrains", tags=["retrains"], status_code=202)
    def request_retrain(body: RetrainRequest) -> dict[str, Any]:
        """Queue a retraining."""
        known = known_model(settings, body.model)
        if body.candidate is not None:
            with engine.connect() as connection:
                found = models.get(connection, body.model, body.candidate)
            if found.status != "challenger":
                detail = f"{found.id} is {found.status}: only a challenger can be put before the gate"
                raise ProblemError(problem(409, detail, field="candidate"))
        elif known.architecture is None:
            detail = f"{body.model} is a predictor function: train it elsewhere on its dataset versions"
            raise ProblemError(problem(409, detail, field="model"))
        params = body.model_dump(exclude={"model"}, exclude_none=True, exclude_defaults=True)
        with write(engine) as connection:
            job = jobs.add(
                connection, model=body.model, kind="retrain", params=params, now_us=now_us(), targets=targets
            )
            return _job(jobs.get(connection, job))

    @router.get("/gates", tags=["retrains"])
    def list_gates(
        model: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 50
    ) -> dict[str, Any]:
        """Verdicts of the promotion gate with reasons and evidence, newest first."""
        query = select(_VERDICT).order_by(_VERDICT.c.created_us.desc(), _VERDICT.c.id).limit(limit)
        if model is not None:
            query = query.where(_VERDICT.c.model == model)
        with engine.connect() as connection:
            rows = connection.execute(query).all()
        return {"gates": [timed(dict(row._mapping)) for row in rows]}


def _job(found: JobRow) -> dict[str, Any]:
    return timed(dataclasses.asdict(found))
