"""Routes of flags and their reviews."""

from typing import Annotated, TypeAlias
from urllib.parse import quote

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from outrider.dataops.flags import reviews
from outrider.dataops.state.database import now_us, write
from outrider.monitor.http.common import Limit, RequestBody
from outrider.monitor.http.declared import FieldsOf, Listed, declared
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.responses import encoded
from outrider.monitor.http.routes import change, form, page, view
from outrider.monitor.queries import queries
from outrider.monitor.queries.queries import FlagView, list_choices, list_descriptions, list_flags, read_flag
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import Fields, back
from outrider.monitor.web.frame import address
from outrider.monitor.web.pictures import draw_evidence, make_cards, png

PAGE_FLAGS = 60


ReviewFacts: TypeAlias = Annotated[reviews.ReviewRow, FieldsOf(reviews.ReviewRow, "FlagReview", times=True)]
Reviews: TypeAlias = Annotated[
    list[ReviewFacts], Listed("reviews", "Reviews", "Reviews of flags, newest first.")
]


class ReviewGiven(RequestBody):
    """Review of a flag: was the model wrong?."""

    flag: str
    is_error: bool
    source: str = Field(default="human", max_length=100)
    note: str = Field(default="", max_length=2000)


@view("/v1/reviews", scope="read", tag="assertions")
def list_reviews(
    service: Service, model: str | None = None, assertion: str | None = None, limit: Limit = 100
) -> Reviews:
    """Reviews of flags, newest first."""
    with service.engine.connect() as connection:
        return reviews.list_reviews(connection, model=model, assertion=assertion, limit=limit)


@change("POST /v1/reviews", scope="review", tag="assertions", status_code=201)
def give_review(service: Service, body: ReviewGiven) -> ReviewFacts:
    """Review a flag; the latest review of a flag counts."""
    with write(service.engine) as connection:
        return reviews.give(
            connection,
            body.flag,
            is_error=body.is_error,
            source=body.source,
            note=body.note,
            now_us=now_us(),
        )


class FlagList(TypedDict):
    """Flags, newest first. ``after`` is the cursor of the next page, null on the last."""

    flags: list[FlagView]
    after: str | None


@page("/m/{model}/flags", scope="read")
def flags_page(
    service: Service,
    request: Request,
    model: str,
    assertion: str = "",
    slot: str = "",
    level: str = "",
    reviewed: str = "",
    after: str = "",
) -> Response:
    chosen = {"assertion": assertion, "slot": slot, "level": level, "reviewed": reviewed}
    try:
        page = queries.list_flags(
            service.engine,
            model,
            assertion=assertion or None,
            slot=slot or None,
            level=level or None,
            reviewed={"yes": True, "no": False}.get(reviewed),
            limit=PAGE_FLAGS,
            after=after or None,
        )
    except ValueError as error:
        return service.frame.message("Bad address", str(error), status=422)
    path = f"/m/{quote(model, safe='')}/flags"
    kept = {name: value for name, value in chosen.items() if value}
    names, slots = list_choices(service.engine, model)
    about = list_descriptions(service.engine, model)
    context = {
        "cards": [service.cards.shown(card, about) for card in make_cards(page.flags, service.blocks.batch)],
        "chosen": chosen,
        "choices": [
            ("assertion", "Assertion", names),
            ("slot", "Slot", slots),
            ("level", "Level", ["info", "warning", "critical"]),
            ("reviewed", "Reviewed", ["no", "yes"]),
        ],
        "any_filter": bool(kept),
        "exhausted": page.exhausted,
        "first_link": address(path, kept) if after else None,
        "next_link": address(path, kept | {"after": page.after}) if page.after else None,
    }
    return service.frame.page(request, "flags.html", model, "/flags", context, refresh=not after)


@page("/m/{model}/images/flags/{flag_id}/{name:path}", scope="read")
def flag_image_page(service: Service, model: str, flag_id: str, name: str) -> Response:
    flag = queries.read_flag(service.engine, model, flag_id)
    return png(draw_evidence(flag.evidence, name) if flag else None)


@form("POST /reviews", scope="review")
def review_form(service: Service, form: Fields) -> Response:
    flag, is_error = form.get("flag", ""), form.get("is_error") == "1"
    with write(service.engine) as connection:
        reviews.give(connection, flag, is_error=is_error, source="page", now_us=now_us())
    return back(form)


@view("/v1/flags", scope="read", response_model=declared(FlagList))
def flags(
    service: Service,
    model: str,
    assertion: str | None = None,
    slot: str | None = None,
    level: str | None = None,
    reviewed: bool | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: str | None = None,
) -> Response:
    """Flags of a model, newest first. Pass ``after`` of the answer to get the next page."""
    service.known(model)
    try:
        page = list_flags(
            service.engine,
            model,
            assertion=assertion,
            slot=slot,
            level=level,
            reviewed=reviewed,
            limit=limit,
            after=after,
        )
    except ValueError as error:
        raise ProblemError(problem(422, str(error), field="after")) from error
    return encoded({"flags": page.flags, "after": page.after})


@view("/v1/flags/{model}/{flag_id}", scope="read", response_model=declared(FlagView))
def flag(service: Service, model: str, flag_id: str) -> Response:
    """Flag by its id."""
    service.known(model)
    found = read_flag(service.engine, model, flag_id)
    if found is None:
        raise ProblemError(problem(404, f"model {model!r} has no flag {flag_id!r}"))
    return encoded(found)
