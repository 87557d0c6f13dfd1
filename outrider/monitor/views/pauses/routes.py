"""API of pauses of shadow models and live tests, not capture."""

from typing import Annotated, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from outrider.dataops.state import pauses
from outrider.dataops.state.database import now_us, write
from outrider.monitor.http.common import RequestBody
from outrider.monitor.http.declared import FieldsOf, Listed
from outrider.monitor.http.routes import change, view
from outrider.monitor.views.service import Service

PauseFacts: TypeAlias = Annotated[pauses.PauseRow, FieldsOf(pauses.PauseRow, "Pause", times=True)]
Pauses: TypeAlias = Annotated[
    list[PauseFacts], Listed("pauses", "Pauses", 'Pauses, oldest first; model ``""`` stands for every model.')
]


class Resumed(TypedDict):
    """Ended pauses, and pauses of every model that hold on."""

    pauses: list[PauseFacts]
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
        return pauses.list_pauses(connection)


@change("POST /v1/pauses", scope="promote", models="body", tag="service", status_code=201)
def pause(service: Service, body: PauseWanted) -> PauseFacts:
    """Let shadow models or live tests rest until somebody resumes them; capture goes on."""
    if body.model:
        service.model(body.model)
    with write(service.engine) as connection:
        return pauses.pause(connection, body.what, model=body.model, who=body.who, now_us=now_us())


@change("POST /v1/pauses/resume", scope="promote", models="body", tag="service")
def resume(service: Service, body: ResumeWanted) -> Resumed:
    """Go on with what came meanwhile. Answers with the pauses that were ended.

    ``still`` are those of every model, which hold for the one that is named too.
    """
    with write(service.engine) as connection:
        ended = pauses.resume(connection, body.what, model=body.model)
        left = [row for row in pauses.list_pauses(connection) if row.what == body.what]
    still = [row for row in left if body.model and row.model == pauses.EVERY_MODEL]
    return {"pauses": ended, "still": still}
