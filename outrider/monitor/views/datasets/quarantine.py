"""The API of quarantined records: list, retry, drop."""

from typing import Annotated, Literal, TypeAlias

from fastapi import Query
from pydantic import Field

from outrider.dataops.datasets import quarantine
from outrider.dataops.datasets.collect import datasets_of
from outrider.dataops.datasets.quarantine import Action, QuarantinedRow, State
from outrider.dataops.state.database import write
from outrider.monitor.http.common import RequestBody
from outrider.monitor.http.declared import FieldsOf, Listed
from outrider.monitor.http.routes import change, view
from outrider.monitor.views.service import Service

RowFacts: TypeAlias = Annotated[QuarantinedRow, FieldsOf(QuarantinedRow, "QuarantinedRow", times=True)]
QuarantinedRows: TypeAlias = Annotated[
    list[RowFacts], Listed("quarantined", "QuarantinedRows", "Records that datasets refused, with reasons.")
]


class QuarantineChoice(RequestBody):
    """Choice of quarantined records; all where none is named."""

    dataset: str | None = None
    records: list[str] = Field(default_factory=list, max_length=10_000)


@view("/v1/quarantine", scope="read", tag="datasets")
def list_quarantine(
    service: Service,
    dataset: str | None = None,
    model: str | None = None,
    state: State | Literal["all"] = "held",
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
) -> QuarantinedRows:
    """Records that datasets refused, newest first; reasons name field and rule, never a value."""
    with service.engine.connect() as connection:
        names = None if dataset is None else [dataset]
        if model is not None:
            mine = datasets_of(connection, model)
            names = [name for name in mine if dataset in (None, name)]
        return quarantine.list_quarantine(
            connection, datasets=names, state=None if state == "all" else state, limit=limit
        )


@change("POST /v1/quarantine/{action}", scope="promote", tag="datasets")
def settle_quarantine(service: Service, action: Action, body: QuarantineChoice) -> QuarantinedRows:
    """Let the next commit look at records again (``retry``), or leave them out for good (``drop``).

    Without ``records`` all that are held, of ``dataset`` where one is named; 404 where one of the named
    is not in quarantine, and nothing is changed. Dropped ones are retried by name.
    """
    with write(service.engine) as connection:
        return quarantine.settle(connection, action, dataset=body.dataset, records=body.records)
