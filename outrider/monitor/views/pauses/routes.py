"""API of pauses of shadow models and live tests, not capture."""

from typing import Annotated, Any, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from outrider.dataops.state import pauses
from outrider.dataops.state.database import now_us, write
from outrider.monitor.http.common import RequestBody
from outrider.monitor.http.declared import FieldsOf
from outrider.monitor.http.routes import change, view
from outrider.monitor.views.service import Service

PAUSE = FieldsOf(pauses.PauseRow, "Pause", times=True)
PauseFacts: TypeAlias = Annotated[dict[str, Any], PAUSE]


class Pauses(TypedDict):
    """Pauses, oldest first; model ``""`` stands for every model."""

    pauses: list[PauseFacts]


class Resumed(Pauses):
    """Ended pauses, and pauses of every model that hold on."""

    still: list[PauseFacts]


class PauseWanted(RequestBody):
    """Request to pause; every model where none is named."""

    what: pauses.What
    model: str = ""
    who: str = Field(default="", max_length=100)


class ResumeWanted(RequestBody):
    """Request to resume; every model where none is named."""

    what: pauses.What
    model: str = ""


@view("/v1/pauses", scope="read", tag="service")
def list_pauses(service: Service) -> Pauses:
    """Pauses in force, oldest first; model ``""`` stands for every model."""
    with service.engine.connect() as connection:
        return _json(pauses.list_pauses(connection))


@change("POST /v1/pauses", scope="promote", models="body", tag="service", status_code=201)
def pause(service: Service, body: PauseWanted) -> PauseFacts:
    """Let shadow models or live tests rest until somebody resumes them; capture goes on."""
    if body.model:
        service.model(body.model)
    with write(service.engine) as connection:
        row = pauses.pause(connection, body.what, model=body.model, who=body.who, now_us=now_us())
    return PAUSE.body(row)


@change("POST /v1/pauses/resume", scope="promote", models="body", tag="service")
def resume(service: Service, body: ResumeWanted) -> Resumed:
    """Go on with what came meanwhile. Answers with the pauses that were ended.

    ``still`` are those of every model, which hold for the one that is named too.
    """
    with write(service.engine) as connection:
        ended = pauses.resume(connection, body.what, model=body.model)
        left = [row for row in pauses.list_pauses(connection) if row.what == body.what]
    still = [row for row in left if body.model and row.model == pauses.EVERY_MODEL]
    return {**_json(ended), "still": _json(still)["pauses"]}


def _json(rows: list[pauses.PauseRow]) -> Pauses:
    return {"pauses": [PAUSE.body(row) for row in rows]}
