"""API of weak labels: corrections that assertions propose."""

from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Query
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.dataops.labels.weak_labels import WeakLabelView, list_weak_labels
from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared, FieldsOf
from outrider.monitor.settings.config import Settings

# Times of records are of any year, which no format of JSON Schema is.
WEAK_LABEL = FieldsOf(WeakLabelView, "StoredWeakLabel", times=True, more={"ts": str})
WeakLabelFacts: TypeAlias = Annotated[dict[str, Any], WEAK_LABEL]


class WeakLabelList(TypedDict):
    """Corrections that assertions propose; ``after`` continues, null ends."""

    weak_labels: list[WeakLabelFacts]
    after: str | None


def weak_label_routes(engine: Engine, settings: Settings) -> APIRouter:
    """Router of the weak labels."""
    router = APIRouter(prefix="/v1")

    @router.get("/weak-labels", tags=["labels"])
    def weak_labels(
        model: str,
        assertion: str | None = None,
        record_id: str | None = None,
        min_confidence: Annotated[float, Query(ge=0, le=1)] = 0.0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
        after: Annotated[str | None, Query(pattern="^[0-9a-f]{32}$")] = None,
    ) -> Declared[WeakLabelList]:
        """Corrections that assertions propose, in order of their ids; ``after`` continues, null ends."""
        known_model(settings, model)
        with engine.connect() as connection:
            found = list_weak_labels(
                connection,
                model=model,
                assertion=assertion,
                record_id=record_id,
                min_confidence=min_confidence,
                limit=limit,
                after=after,
            )
        return {
            "weak_labels": [WEAK_LABEL.body(row) for row in found],
            "after": found[-1].id if len(found) == limit else None,
        }

    return router
