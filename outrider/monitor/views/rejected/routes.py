"""API of refused records: reasons and counts."""

from typing import Annotated, TypeAlias

from outrider.monitor.http.declared import FieldsOf, Listed
from outrider.monitor.http.refusals import RefusedKind
from outrider.monitor.http.routes import view
from outrider.monitor.views.service import Service

RefusedFacts: TypeAlias = Annotated[RefusedKind, FieldsOf(RefusedKind, "Refused", times=True)]
RefusedKinds: TypeAlias = Annotated[
    list[RefusedFacts],
    Listed("rejected", "RefusedKinds", "Refused records by model, reason and field, the newest first."),
]


@view("/v1/rejected", scope="read", tag="service")
def list_rejected(service: Service, model: str | None = None) -> RefusedKinds:
    """Records that intake refused, by model, reason and field, with counts and no content.

    With ``model`` those of the model, and those whose model is none under watch.
    """
    if model is not None:
        service.model(model)
    return service.refusals.listed(model, service.settings.models)
