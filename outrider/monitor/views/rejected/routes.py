"""API of refused records: reasons and counts."""

from typing import Annotated, Any, TypeAlias

from typing_extensions import TypedDict

from outrider.monitor.http.declared import FieldsOf
from outrider.monitor.http.refusals import RefusedKind
from outrider.monitor.http.routes import view
from outrider.monitor.views.service import Service

REFUSED = FieldsOf(RefusedKind, "Refused", times=True)
RefusedFacts: TypeAlias = Annotated[dict[str, Any], REFUSED]


class RefusedKinds(TypedDict):
    """Refused records by model, reason and field, the newest first."""

    rejected: list[RefusedFacts]


@view("/v1/rejected", scope="read", tag="service")
def list_rejected(service: Service, model: str | None = None) -> RefusedKinds:
    """Records that intake refused, by model, reason and field, with counts and no content.

    With ``model`` those of the model, and those whose model is none under watch.
    """
    if model is not None:
        service.model(model)
    kinds = service.refusals.listed(model, service.settings.models)
    return {"rejected": [REFUSED.body(kind) for kind in kinds]}
