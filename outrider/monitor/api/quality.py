"""API of assertion quality: figures, suspensions, reviews, incidents."""

from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime, Field
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.assertions.flags.quality import Detection, LeadTime, Overlap, SuspensionRule
from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.flags import reviews
from outrider.dataops.flags.live_rates import LiveRateView, list_rates
from outrider.dataops.flags.quality import (
    FOREVER_US,
    AssertionQuality,
    read_overlaps,
    read_quality,
    resume,
    suspend,
)
from outrider.dataops.state.database import now_us, write
from outrider.monitor.http.common import (
    RateFigures,
    RequestBody,
    iso,
    targets_of,
)
from outrider.monitor.http.declared import Declared, FieldsOf, Time
from outrider.monitor.http.incident_actions import act
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.settings.config import Settings

Limit = Annotated[int, Query(ge=1, le=1000)]
MOST_S = 3_155_760_000
"""A hundred years: more than that has no date."""
OVERLAP = FieldsOf(
    Overlap,
    "AssertionOverlap",
    more={
        "jaccard": float,
        "b_given_a": RateFigures,
        "a_given_b": RateFigures,
        "a_is_subsumed": bool,
        "b_is_subsumed": bool,
    },
)
OverlapFacts: TypeAlias = Annotated[dict[str, Any], OVERLAP]
LIVE_RATE = FieldsOf(LiveRateView, "LiveTestRate", times=True)
LiveRateFacts: TypeAlias = Annotated[dict[str, Any], LIVE_RATE]
REVIEW = FieldsOf(reviews.ReviewRow, "FlagReview", times=True)
ReviewFacts: TypeAlias = Annotated[dict[str, Any], REVIEW]
INCIDENT = FieldsOf(
    IncidentRow,
    "AssertionIncident",
    times=True,
    more={"muted_until": Time | None, "sentence": str, "next_step": str},
)
IncidentFacts: TypeAlias = Annotated[dict[str, Any], INCIDENT]

_DETECTION = FieldsOf(
    Detection,
    "DetectionFigures",
    about="Separation of errors from right answers.",
    more=dict.fromkeys(("coverage", "false_failures", "errors"), RateFigures),
)
QUALITY = FieldsOf(
    AssertionQuality,
    "AssertionFigures",
    about="All figures of one assertion.",
    without=("suspended_until_us",),
    more={
        "fire_rate": RateFigures,
        "precision": RateFigures,
        "by_slice": dict[str, RateFigures],
        "detection": Annotated[dict[str, Any], _DETECTION],
        "lead": LeadTime,
        "suspended_until": Time | None,
    },
)


class Overlaps(TypedDict):
    """Pairs of assertions that fire on the same records."""

    overlaps: list[OverlapFacts]


class AssertionReport(TypedDict):
    """Assertion with its live rates and its overlaps."""

    assertion: Annotated[dict[str, Any], QUALITY]
    rates: list[LiveRateFacts]
    overlaps: list[OverlapFacts]


class SuspensionState(TypedDict):
    """Suspension of an assertion, with its reason."""

    name: str
    suspended_until: Time | None
    suspension: str


class Reviews(TypedDict):
    """Reviews of flags, newest first."""

    reviews: list[ReviewFacts]


class Incidents(TypedDict):
    """Incidents, newest first."""

    incidents: list[IncidentFacts]


class SuspensionWanted(RequestBody):
    """Request to suspend an assertion, with time and reason.

    Without a time until somebody resumes it.
    """

    until: AwareDatetime | None = None
    for_s: float | None = Field(default=None, gt=0, le=MOST_S)
    reason: str = Field(default="", max_length=500)


class ReviewGiven(RequestBody):
    """Review of a flag: was the model wrong?."""

    flag: str
    is_error: bool
    source: str = Field(default="human", max_length=100)
    note: str = Field(default="", max_length=2000)


class IncidentAction(RequestBody):
    """Request to act on an incident; ``mute`` needs an end. ``until`` or ``for_s``."""

    action: Literal["acknowledge", "mute", "resolve"]
    until: AwareDatetime | None = None
    for_s: float | None = Field(default=None, gt=0, le=MOST_S)
    note: str = Field(default="", max_length=500)


def add_quality(router: APIRouter, engine: Engine, settings: Settings) -> None:
    """Add the routes of figures and suspensions."""
    rule = settings.quality.fill(SuspensionRule)

    @router.get("/overlaps", tags=["assertions"])
    def list_overlaps(model: str) -> Declared[Overlaps]:
        """Pairs of assertions that fire on the same records, most alike first."""
        with engine.connect() as connection:
            return {"overlaps": [_overlap(pair) for pair in read_overlaps(connection, model)]}

    @router.get("/assertions/{model}/{name:path}", tags=["assertions"])
    def show_assertion(model: str, name: str) -> Declared[AssertionReport]:
        """All figures of one assertion or live test."""
        with engine.connect() as connection:
            found = read_quality(connection, model, name, now_us=now_us(), rule=rule)
            pairs = read_overlaps(connection, model)
            rates = list_rates(connection, model, test=name)
        return {
            "assertion": QUALITY.body(found, suspended_until=found.suspended_until_us or None),
            "rates": [LIVE_RATE.body(rate) for rate in rates],
            "overlaps": [_overlap(pair) for pair in pairs_of(pairs, name)],
        }

    @router.post("/assertions/{model}/{name:path}/suspend", tags=["assertions"])
    def suspend_assertion(model: str, name: str, body: SuspensionWanted) -> Declared[SuspensionState]:
        """Let an assertion rest in every slot; a new revision of it judges again at once."""
        until = _time(body.until, body.for_s) or FOREVER_US
        with write(engine) as connection:
            suspend(connection, model, name, until_us=until, reason=body.reason)
        return {"name": name, "suspended_until": iso(until), "suspension": body.reason or "by hand"}

    @router.post("/assertions/{model}/{name:path}/resume", tags=["assertions"])
    def resume_assertion(model: str, name: str) -> Declared[SuspensionState]:
        """Let a suspended assertion judge again."""
        with write(engine) as connection:
            resume(connection, model, name, now_us=now_us())
        return {"name": name, "suspended_until": None, "suspension": ""}


def add_reviews(router: APIRouter, engine: Engine) -> None:
    """Add the routes of reviews."""

    @router.get("/reviews", tags=["assertions"])
    def list_reviews(
        model: str | None = None, assertion: str | None = None, limit: Limit = 100
    ) -> Declared[Reviews]:
        """Reviews of flags, newest first."""
        with engine.connect() as connection:
            found = reviews.list_reviews(connection, model=model, assertion=assertion, limit=limit)
        return {"reviews": [REVIEW.body(row) for row in found]}

    @router.post("/reviews", tags=["assertions"], status_code=201)
    def give_review(body: ReviewGiven) -> Declared[ReviewFacts]:
        """Review a flag; the latest review of a flag counts."""
        with write(engine) as connection:
            row = reviews.give(
                connection,
                body.flag,
                is_error=body.is_error,
                source=body.source,
                note=body.note,
                now_us=now_us(),
            )
        return REVIEW.body(row)


def add_incidents(router: APIRouter, engine: Engine, settings: Settings) -> None:
    """Add the routes of incidents."""
    targets = targets_of(settings)

    @router.get("/incidents", tags=["assertions"])
    def list_incidents(
        model: str | None = None,
        status: Literal["current", "open", "acknowledged", "muted", "resolved", "all"] = "current",
        assertion: str | None = None,
        limit: Limit = 50,
    ) -> Declared[Incidents]:
        """Incidents, newest first; ``current`` are those that are not resolved."""
        wanted = None if status == "all" else status
        with engine.connect() as connection:
            found = stored_incidents.list_incidents(
                connection, now_us=now_us(), model=model, status=wanted, assertion=assertion, limit=limit
            )
        return {"incidents": [_incident(row) for row in found]}

    @router.post("/incidents/{incident}", tags=["assertions"])
    def change_incident(incident: str, body: IncidentAction, request: Request) -> Declared[IncidentFacts]:
        """Acknowledge, mute or resolve an incident."""
        until, who = _time(body.until, body.for_s), visitor_of(request).name
        return _incident(
            act(engine, incident, body.action, until_us=until, note=body.note, who=who, targets=targets)
        )


def _overlap(pair: Overlap) -> dict[str, Any]:
    return OVERLAP.body(pair, a_is_subsumed=pair.is_subsumed, b_is_subsumed=pair.reversed().is_subsumed)


def _incident(row: IncidentRow) -> dict[str, Any]:
    return INCIDENT.body(row, muted_until=row.muted_until_us or None)


def pairs_of(pairs: list[Overlap], name: str) -> list[Overlap]:
    """Pairs of one assertion, from its own side."""
    return [pair if pair.a == name else pair.reversed() for pair in pairs if name in (pair.a, pair.b)]


def _time(until: AwareDatetime | None, for_s: float | None) -> int | None:
    if until is not None and for_s is not None:
        raise ProblemError(problem(422, "until and for_s exclude each other: give one", field="for_s"))
    if for_s is not None:
        return now_us() + int(for_s * 1e6)
    return None if until is None else int(until.timestamp() * 1e6)
