"""Routes of assertions: list, figures, overlaps, suspensions."""

from typing import Annotated, Any, TypeAlias

from fastapi import Request
from pydantic import AwareDatetime, Field
from starlette.responses import Response
from typing_extensions import TypedDict

from outrider.assertions.flags.quality import Detection, LeadTime, Overlap
from outrider.dataops.flags import quality
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
from outrider.errors import NotFound
from outrider.monitor.http.common import MOST_S, RateFigures, RequestBody, end_us, iso
from outrider.monitor.http.declared import FieldsOf, Listed, Time, declared
from outrider.monitor.http.responses import encoded
from outrider.monitor.http.routes import change, form, page, view
from outrider.monitor.queries import queries
from outrider.monitor.views.overview.facts import ASSERTION, AssertionFacts
from outrider.monitor.views.overview.reader import list_assertions
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import Fields, back, until_us
from outrider.monitor.web.pictures import make_card

from .reader import read_assertion

ASSERTION_FLAGS = 24


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
LiveRateFacts: TypeAlias = Annotated[LiveRateView, FieldsOf(LiveRateView, "LiveTestRate", times=True)]
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
Overlaps: TypeAlias = Annotated[
    list[OverlapFacts], Listed("overlaps", "Overlaps", "Pairs of assertions that fire on the same records.")
]


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


class SuspensionWanted(RequestBody):
    """Request to suspend an assertion, with time and reason.

    Without a time until somebody resumes it.
    """

    until: AwareDatetime | None = None
    for_s: float | None = Field(default=None, gt=0, le=MOST_S)
    reason: str = Field(default="", max_length=500)


@view("/v1/overlaps", scope="read", tag="assertions")
def list_overlaps(service: Service, model: str) -> Overlaps:
    """Pairs of assertions that fire on the same records, most alike first."""
    with service.engine.connect() as connection:
        return [_overlap(pair) for pair in read_overlaps(connection, model)]


@view("/v1/assertions/{model}/{name:path}", scope="read", tag="assertions")
def show_assertion(service: Service, model: str, name: str) -> AssertionReport:
    """All figures of one assertion or live test."""
    with service.engine.connect() as connection:
        found = read_quality(connection, model, name, now_us=now_us(), rule=service.rule)
        pairs = read_overlaps(connection, model)
        rates = list_rates(connection, model, test=name)
    return {
        "assertion": QUALITY.body(found, suspended_until=found.suspended_until_us or None),
        "rates": rates,
        "overlaps": [_overlap(pair) for pair in pairs_of(pairs, name)],
    }


@change("POST /v1/assertions/{model}/{name:path}/suspend", scope="review", tag="assertions")
def suspend_assertion(service: Service, model: str, name: str, body: SuspensionWanted) -> SuspensionState:
    """Let an assertion rest in every slot; a new revision of it judges again at once."""
    until = end_us(body.until, body.for_s) or FOREVER_US
    with write(service.engine) as connection:
        suspend(connection, model, name, until_us=until, reason=body.reason)
    return {"name": name, "suspended_until": iso(until), "suspension": body.reason or "by hand"}


@change("POST /v1/assertions/{model}/{name:path}/resume", scope="review", tag="assertions")
def resume_assertion(service: Service, model: str, name: str) -> SuspensionState:
    """Let a suspended assertion judge again."""
    with write(service.engine) as connection:
        resume(connection, model, name, now_us=now_us())
    return {"name": name, "suspended_until": None, "suspension": ""}


def _overlap(pair: Overlap) -> dict[str, Any]:
    return OVERLAP.body(pair, a_is_subsumed=pair.is_subsumed, b_is_subsumed=pair.reversed().is_subsumed)


def pairs_of(pairs: list[Overlap], name: str) -> list[Overlap]:
    return [pair if pair.a == name else pair.reversed() for pair in pairs if name in (pair.a, pair.b)]


AssertionList: TypeAlias = Annotated[
    list[AssertionFacts],
    Listed("assertions", "AssertionList", "Active assertions and live tests of a model."),
]


@page("/assertions/{model}/{name:path}", scope="read")
def assertion_page(service: Service, request: Request, model: str, name: str) -> Response:
    try:
        view = read_assertion(service.engine, model, name, now_us=now_us(), rule=service.rule)
    except NotFound:
        text = f"{model} has no assertion {name!r} now. Its flags stay among the flagged records."
        return service.frame.message("Not found", text, model=model)
    page = queries.list_flags(service.engine, model, assertion=name, limit=ASSERTION_FLAGS)
    about = {name: view.quality.description}
    cards = [service.cards.shown(make_card((flag,), service.blocks.batch), about) for flag in page.flags]
    context = {
        "a": view,
        "q": view.quality,
        "cards": cards,
        "more": page.after is not None,
        "peak": max(view.severities.counts, default=0),
    }
    return service.frame.page(request, "assertion.html", model, "/assertions", context)


@form("POST /assertions/{model}/{name:path}/suspend", scope="review")
def suspend_form(service: Service, model: str, name: str, form: Fields) -> Response:
    until = until_us(form) or quality.FOREVER_US
    with write(service.engine) as connection:
        quality.suspend(connection, model, name, until_us=until, reason="by hand, on its page")
    return back(form)


@form("POST /assertions/{model}/{name:path}/resume", scope="review")
def resume_form(service: Service, model: str, name: str, form: Fields) -> Response:
    with write(service.engine) as connection:
        quality.resume(connection, model, name, now_us=now_us())
    return back(form)


@view("/v1/assertions", scope="read", response_model=declared(AssertionList))
def assertions(service: Service, model: str) -> Response:
    """Active assertions and live tests with counts, rates and precision."""
    service.known(model)
    rows = list_assertions(service.engine, model, now_us=now_us(), rule=service.rule)
    return encoded({"assertions": [ASSERTION.body(row) for row in rows]})
