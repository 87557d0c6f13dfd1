"""Routes of labels: the queue, estimates, proposed corrections."""

from typing import Annotated, TypeAlias

from fastapi import Query
from pydantic import AwareDatetime, Field
from sqlalchemy import Connection
from typing_extensions import TypedDict

from outrider.assertions.selection import Policy
from outrider.dataops.labels import estimates
from outrider.dataops.labels import queue as labels
from outrider.dataops.labels.weak_labels import WeakLabelView, list_weak_labels
from outrider.dataops.state.database import now_us, write
from outrider.monitor.http.common import RequestBody
from outrider.monitor.http.declared import FieldsOf, Listed
from outrider.monitor.http.routes import change, view
from outrider.monitor.views.service import Service

RequestFacts: TypeAlias = Annotated[
    labels.RequestedLabel, FieldsOf(labels.RequestedLabel, "LabelRequest", times=True)
]
LabelRequests: TypeAlias = Annotated[
    list[RequestFacts], Listed("requests", "LabelRequests", "Records that wait for a label, or got one.")
]
TrafficEstimates: TypeAlias = Annotated[
    estimates.Estimates,
    FieldsOf(
        estimates.Estimates,
        "TrafficEstimates",
        about="Accuracy, and precision per assertion, over the traffic.",
    ),
]


class LabelsWanted(RequestBody):
    """Request for labels. Omitted options are as in the configuration."""

    model: str
    budget: int | None = Field(default=None, ge=0, le=100_000)
    policy: Policy | None = None
    since: AwareDatetime | None = None


@view("/v1/label-requests", scope="read", tag="labels")
def list_requests(
    service: Service,
    model: str | None = None,
    status: labels.Status = "open",
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
) -> LabelRequests:
    """The label queue."""
    with service.engine.connect() as connection:
        return labels.list_requests(connection, model=model, status=status, limit=limit)


@view("/v1/models/{model}/estimates", scope="read", tag="labels")
def read_estimates(service: Service, model: str) -> TrafficEstimates:
    """Accuracy and precision over the traffic, from labels that were asked for."""
    service.model(model)
    with service.engine.connect() as connection:
        return estimates.read_estimates(connection, model)


@change("POST /v1/label-requests", scope="label", models="body", tag="labels", status_code=201)
def request_labels(service: Service, body: LabelsWanted) -> LabelRequests:
    """Choose records to label, within a budget."""
    own = service.model(body.model).labels

    def choose(connection: Connection) -> labels.Choice:
        return labels.choose_labels(
            connection,
            model=body.model,
            budget=own.budget if body.budget is None else body.budget,
            policy=body.policy or own.policy,
            seed=service.settings.worker.seed,
            now_us=now_us(),
            since_us=None if body.since is None else int(body.since.timestamp() * 1e6),
            audit_share=own.audit_share,
            group_s=own.label_group_s,
            blocks=service.journal,
        )

    with service.engine.connect() as connection:  # choosing takes a while and needs no write lock
        found = choose(connection)
    with write(service.engine) as connection:
        if not labels.queue_labels(connection, found):  # somebody was faster: now under the lock
            found = choose(connection)
            labels.queue_labels(connection, found)
    return found.requests


# Times of records are of any year, which no format of JSON Schema is.
WeakLabelFacts: TypeAlias = Annotated[
    WeakLabelView, FieldsOf(WeakLabelView, "StoredWeakLabel", times=True, more={"ts": str})
]


class WeakLabelList(TypedDict):
    """Corrections that assertions propose; ``after`` continues, null ends."""

    weak_labels: list[WeakLabelFacts]
    after: str | None


@view("/v1/weak-labels", scope="read", tag="labels")
def weak_labels(
    service: Service,
    model: str,
    assertion: str | None = None,
    record_id: str | None = None,
    min_confidence: Annotated[float, Query(ge=0, le=1)] = 0.0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    after: Annotated[str | None, Query(pattern="^[0-9a-f]{32}$")] = None,
) -> WeakLabelList:
    """Corrections that assertions propose, in order of their ids; ``after`` continues, null ends."""
    service.model(model)
    with service.engine.connect() as connection:
        found = list_weak_labels(
            connection,
            model=model,
            assertion=assertion,
            record_id=record_id,
            min_confidence=min_confidence,
            limit=limit,
            after=after,
        )
    return {"weak_labels": found, "after": found[-1].id if len(found) == limit else None}
