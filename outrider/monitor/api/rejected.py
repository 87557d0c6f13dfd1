"""API of refused records: reasons and counts."""

from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter
from typing_extensions import TypedDict

from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared, FieldsOf
from outrider.monitor.http.refusals import RefusalBook, RefusedKind
from outrider.monitor.settings.config import Settings

REFUSED = FieldsOf(RefusedKind, "Refused", times=True)
RefusedFacts: TypeAlias = Annotated[dict[str, Any], REFUSED]


class RefusedKinds(TypedDict):
    """Refused records by model, reason and field, the newest first."""

    rejected: list[RefusedFacts]


def rejected_routes(settings: Settings, refusals: RefusalBook) -> APIRouter:
    """Route of refused records."""
    router = APIRouter(prefix="/v1", tags=["service"])

    @router.get("/rejected")
    def list_rejected(model: str | None = None) -> Declared[RefusedKinds]:
        """Records that intake refused, by model, reason and field, with counts and no content.

        With ``model`` those of the model, and those whose model is none under watch.
        """
        if model is not None:
            known_model(settings, model)
        kinds = refusals.listed(model, settings.models)
        return {"rejected": [REFUSED.body(kind) for kind in kinds]}

    return router
