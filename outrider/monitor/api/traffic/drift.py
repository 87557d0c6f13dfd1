"""``GET /v1/models/{model}/drift``: columns of newest traffic against a reference."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared
from outrider.monitor.queries.drift import DEFAULT, DriftFacts, DriftReader, DriftRequest
from outrider.monitor.settings.config import Settings

NAMES = 255


class ModelDrift(DriftFacts):
    """Drift of a model's columns."""

    model: str


def drift_routes(settings: Settings, reader: DriftReader) -> APIRouter:
    """Routes about drift."""

    def drift(
        model: str,
        since: AwareDatetime | None = None,
        until: AwareDatetime | None = None,
        reference: Annotated[str, Query(max_length=NAMES)] = DEFAULT,
        version: Annotated[str | None, Query(max_length=NAMES)] = None,
        slice: Annotated[str | None, Query(max_length=NAMES)] = None,
    ) -> ModelDrift:
        """Columns that are distributed otherwise than in the reference, worst first.

        By default the last hour against the 24 hours before. ``reference``: ``dataset``, ``7d``, or
        ``SINCE..UNTIL``.
        """
        known_model(settings, model)
        begin, end = (None if one is None else int(one.timestamp() * 1e6) for one in (since, until))
        return {
            "model": model,
            **reader.read(DriftRequest(model, begin, end, reference, version, slice)),
        }

    router = APIRouter(prefix="/v1", tags=["read"])
    router.add_api_route("/models/{model}/drift", drift, methods=["GET"], response_model=Declared[ModelDrift])
    return router
