"""Export of the journal's records, block by block."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from outrider.dataops.journal.journal import Journal
from outrider.monitor.http.common import known_model
from outrider.monitor.http.responses import binary
from outrider.monitor.settings.config import Settings

ARROW = "application/vnd.apache.arrow.stream"
NEXT = "x-outrider-next"


def export_routes(journal: Journal, settings: Settings) -> APIRouter:
    """Router of the record export."""
    router = APIRouter(prefix="/v1")

    @router.get(
        "/records",
        tags=["read"],
        response_class=Response,
        responses=binary(ARROW) | {204: {"description": "There is no further block"}},
    )
    def records(
        model: str, after: Annotated[int, Query(ge=0, lt=2**63)] = 0, from_end: bool = False
    ) -> Response:
        """Next block of records behind ``after`` as an Arrow IPC stream; 204 at the end.

        The header ``x-outrider-next`` is the ``after`` of the following request. With ``from_end`` it is that
        of the records to come, and nothing else is answered.
        """
        known_model(settings, model)
        if from_end:
            return Response(status_code=204, headers={NEXT: str(journal.last_seq())})
        while blocks := journal.read(after, limit=16, model=model):
            for block in blocks:
                after = block.seq
                if block.kind == "records" and not block.damage:
                    return Response(block.payload, media_type=ARROW, headers={NEXT: str(after)})
        return Response(status_code=204, headers={NEXT: str(after)})

    return router
