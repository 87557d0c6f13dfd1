"""The API of retrainings and of the promotion gate's verdicts."""

import dataclasses
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from fastapi import APIRouter, Query, Request
from pydantic import Field
from sqlalchemy import Connection, Engine
from typing_extensions import TypedDict

from outrider.dataops.datasets.references import open_version
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.improvement.verdicts import VerdictRow, list_verdicts
from outrider.dataops.models import lineage
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write
from outrider.dataops.triggers.firing import note_manual
from outrider.monitor.http.common import EstimateFacts, RequestBody, known_model, timed
from outrider.monitor.http.declared import Declared, FieldsOf, Time
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.settings.config import Settings

JobFacts: TypeAlias = Annotated[dict[str, Any], FieldsOf(JobRow, "Job", times=True)]


class Retrains(TypedDict):
    """Retraining jobs, newest first."""

    retrains: list[JobFacts]


class AskedFigures(TypedDict):
    """Figures of one model on a behavioral test."""

    cases: int
    failures: int
    low: float
    high: float
    error: str
    confidence: float


class SuiteFigures(TypedDict):
    """One behavioral test, asked of both about the same cases."""

    suite: str
    test: str
    capability: str
    kind: str
    tolerance: float
    champion: AskedFigures
    candidate: AskedFigures
    only_champion_fails: int
    only_candidate_fails: int
    p: float
    compared: str
    note: str
    examples: list[str]


class ExcessFigures(TypedDict):
    """Mean loss of the candidate beyond the champion's, with one-sided bounds."""

    value: float | None
    low: float | None
    high: float | None
    """None where it is infinite."""
    rows: int
    entities: int
    error: float
    variance: float
    effect: float
    stretch: str


class SliceFigures(TypedDict):
    """Excess on the rows of one slice."""

    name: str
    excess: ExcessFigures
    most: float


class PairedFigures(TypedDict):
    """Losses of both models on the same labelled rows."""

    dataset: str
    loss: str
    champion_loss: float | None
    excess: ExcessFigures
    is_relative: bool
    tries: int
    worn: int
    left_out: int
    slices: list[SliceFigures]
    classes: list[SliceFigures]
    fault: str
    champion_share: EstimateFacts | None
    candidate_share: EstimateFacts | None


class FlagsAtLevel(TypedDict):
    """Live records that one of the two alone flags at a level."""

    level: str
    only_champion: int
    only_candidate: int


class LiveFlags(TypedDict):
    """Flags on the answers of both to the same live records."""

    rows: int
    champion_flagged: int
    candidate_flagged: int
    only_champion: int
    only_candidate: int
    entities: int
    entity_hours: int
    difference: float
    low: float
    high: float
    levels: list[FlagsAtLevel]
    others: int


class NamedSliceFigures(TypedDict):
    """Losses of both models on a slice that the policy names."""

    name: str
    max_drop: float
    pair: PairedFigures


class FlagLimitFigures(TypedDict):
    """Most live records that an assertion may flag."""

    assertion: str
    max_share: float


class LimitsAsked(TypedDict):
    """Limits that a policy sets."""

    flags: list[FlagLimitFigures]
    agreement: Literal["same", "close", "not worse"] | None
    p99_ms: float | None
    time_ratio: float | None
    max_mb: float | None
    bytes_ratio: float | None


class FlagShareFigures(TypedDict):
    """Share of common live records that an assertion flags."""

    assertion: str
    rows: int
    judged: int
    flagged: int
    stretches: int
    value: float
    low: float
    high: float
    thinned: int


class WrongFigures(TypedDict):
    """Labelled live records that the candidate gets wrong beyond the champion."""

    records: int
    value: float
    low: float
    high: float


class LiveAgreement(TypedDict):
    """Verdict on the answers of both to the same live records."""

    word: str
    value: float
    low: float
    high: float
    rows: int
    margin: float
    more: int | None
    wrong: WrongFigures | None


class TimeFigures(TypedDict):
    """Candidate's time to answer, live and in turn with the champion."""

    answered: int
    p99_ms: float | None
    rounds: int
    ratio: float | None
    low: float
    high: float | None


class WeightFigures(TypedDict):
    """Bytes of both models' weights; None where unknown."""

    champion: int | None
    candidate: int | None


class LimitFigures(TypedDict):
    """Evidence on the limits of a policy."""

    flags: list[FlagShareFigures]
    agreement: LiveAgreement | None
    times: TimeFigures | None
    weights: WeightFigures | None


class RollingStanding(TypedDict):
    """Version beside the champion, on rows that neither was trained on."""

    version: str
    rows: int
    hours: int
    better: int
    worse: int
    champion_loss: float | None
    loss: float | None
    p: float
    """Adjusted over all compared versions."""
    is_compared: bool
    is_better: bool


class RollingFigures(TypedDict):
    """All other versions beside the champion, on the latest labelled rows."""

    rows: int
    p: float
    champion: str
    standings: list[RollingStanding]
    winner: str | None
    left_out: list[str]
    judged: str


class GatePolicy(TypedDict):
    """Policy that a verdict followed."""

    max_drop: float
    min_gain: float
    shadow_rows: int
    requires: list[Literal["labels", "suites", "shadow"]]
    suites: list[str]
    tests: list[str]
    limits: LimitsAsked
    rolling_rows: int
    """Latest labelled rows that all versions are compared on; 0 for no such comparison."""
    rolling_p: float
    fault: str
    file: str
    """Empty where the configuration held the policy itself."""
    digest: str
    """SHA-256 of ``text``."""
    text: str
    """The file as it was; JSON of the keys without one."""


class GateEvidence(TypedDict):
    """Evidence of a verdict."""

    suites: list[SuiteFigures]
    held_out: PairedFigures | None
    fresh: PairedFigures | None
    shadow: LiveFlags | None
    missing: list[str]
    named: list[NamedSliceFigures]
    limits: LimitFigures
    rolling: RollingFigures | None
    policy: GatePolicy
    passed: bool
    undecided: bool
    job: NotRequired[str]
    """That the verdict is about."""


class GateDecision(TypedDict):
    """A verdict of the promotion gate."""

    id: str
    model: str
    candidate: str
    champion: str
    promoted: bool
    outcome: Literal["promoted", "refused", "undecided", "waiting for a person", "passed"]
    """``passed`` when somebody has decided since."""
    reasons: list[str]
    evidence: GateEvidence
    created: Time


class GateDecisions(TypedDict):
    """Verdicts of the promotion gate, newest first."""

    gates: list[GateDecision]


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


def add_retrains(router: APIRouter, engine: Engine, settings: Settings) -> None:
    """Add the routes."""

    @router.get("/retrains", tags=["retrains"])
    def list_retrains(
        model: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 50
    ) -> Declared[Retrains]:
        """Retraining jobs, newest first."""
        with engine.connect() as connection:
            found = jobs.recent(connection, kind="retrain", model=model, limit=limit)
        return {"retrains": [job_facts(job) for job in found]}

    @router.get("/retrains/{job}", tags=["retrains"])
    def get_retrain(job: str) -> Declared[JobFacts]:
        """Job with its stage, seconds per stage, candidate and reasons."""
        with engine.connect() as connection:
            return job_facts(jobs.get(connection, job))

    @router.post("/retrains", tags=["retrains"], status_code=202)
    def request_retrain(body: RetrainRequest, request: Request) -> Declared[JobFacts]:
        """Queue a retraining."""
        known = known_model(settings, body.model)
        if body.candidate is not None or body.repeat is not None:
            with engine.connect() as connection:
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
        with write(engine) as connection:
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
            return job_facts(jobs.get(connection, job))

    @router.get("/gates", tags=["retrains"], response_model=Declared[GateDecisions])
    def list_gates(
        model: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 50
    ) -> dict[str, Any]:
        """Verdicts of the promotion gate with reasons and evidence, newest first."""
        with engine.connect() as connection:
            found = list_verdicts(connection, model, limit=limit)
        return {"gates": [_verdict(verdict) for verdict in found]}


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


def _verdict(found: VerdictRow) -> dict[str, Any]:
    row = timed(dataclasses.asdict(found)) | {"outcome": found.outcome}
    del row["status"]
    return row


def job_facts(found: JobRow) -> dict[str, Any]:
    """Fields of a job for the API."""
    return timed(dataclasses.asdict(found))
