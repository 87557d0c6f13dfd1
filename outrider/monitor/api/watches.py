"""``GET /v1/models/{model}/watch``: watches over new champions."""

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.dataops.improvement import watches
from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared
from outrider.monitor.queries.watches import WatchFigures, watch_json
from outrider.monitor.settings.config import Settings


class WatchList(TypedDict):
    """Newest watches of a model, with its settings."""

    model: str
    settings: dict[str, float | bool]
    watches: list[WatchFigures]


def watch_routes(engine: Engine, settings: Settings) -> APIRouter:
    """Routes about watches."""
    router = APIRouter(prefix="/v1", tags=["models"])

    @router.get("/models/{model}/watch")
    def get_watch(model: str, limit: Annotated[int, Query(ge=1, le=100)] = 5) -> Declared[WatchList]:
        """The newest watches over champions: evidence, bounds over time, and what became of them."""
        own = known_model(settings, model).watch
        with engine.connect() as connection:
            found = watches.newest(connection, model, limit=limit)
        return {"model": model, "settings": own.model_dump(), "watches": [watch_json(one) for one in found]}

    return router
