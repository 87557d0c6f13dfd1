"""The API of the label queue."""

from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field
from sqlalchemy import Connection, Engine
from typing_extensions import TypedDict

from outrider.assertions.selection import Policy
from outrider.assertions.statistics.estimation import Estimate
from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.labels import estimates
from outrider.dataops.labels import queue as labels
from outrider.dataops.state.database import now_us, write
from outrider.monitor.http.common import RequestBody, known_model
from outrider.monitor.http.declared import Declared, FieldsOf, as_it_stands
from outrider.monitor.settings.config import Settings

REQUEST = FieldsOf(labels.RequestedLabel, "LabelRequest", times=True)
RequestFacts: TypeAlias = Annotated[dict[str, Any], REQUEST]
_ESTIMATE = as_it_stands(Estimate)
EstimateFacts: TypeAlias = Annotated[dict[str, Any], _ESTIMATE]


class LabelRequests(TypedDict):
    """Records that wait for a label, or got one."""

    requests: list[RequestFacts]


class TrafficEstimates(TypedDict):
    """Accuracy, and precision per assertion, over the traffic."""

    accuracy: EstimateFacts
    precision: dict[str, EstimateFacts]
    note: str


class LabelsWanted(RequestBody):
    """Request for labels. Omitted options are as in the configuration."""

    model: str
    budget: int | None = Field(default=None, ge=0, le=100_000)
    policy: Policy | None = None
    since: AwareDatetime | None = None


def add_labels(
    router: APIRouter, engine: Engine, settings: Settings, blocks: BlockSource | None = None
) -> None:
    """Add the routes; ``blocks`` is the journal."""

    @router.get("/label-requests", tags=["labels"])
    def list_requests(
        model: str | None = None,
        status: labels.Status = "open",
        limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    ) -> Declared[LabelRequests]:
        """The label queue."""
        with engine.connect() as connection:
            found = labels.list_requests(connection, model=model, status=status, limit=limit)
        return {"requests": [REQUEST.body(item) for item in found]}

    @router.get("/models/{model}/estimates", tags=["labels"])
    def read_estimates(model: str) -> Declared[TrafficEstimates]:
        """Accuracy and precision over the traffic, from labels that were asked for."""
        known_model(settings, model)
        with engine.connect() as connection:
            found = estimates.read_estimates(connection, model)
        return {
            "accuracy": _ESTIMATE.body(found.accuracy),
            "precision": {name: _ESTIMATE.body(one) for name, one in found.precision.items()},
            "note": found.note,
        }

    @router.post("/label-requests", tags=["labels"], status_code=201)
    def request_labels(body: LabelsWanted) -> Declared[LabelRequests]:
        """Choose records to label, within a budget."""
        own = known_model(settings, body.model).labels

        def choose(connection: Connection) -> labels.Choice:
            return labels.choose_labels(
                connection,
                model=body.model,
                budget=own.budget if body.budget is None else body.budget,
                policy=body.policy or own.policy,
                seed=settings.worker.seed,
                now_us=now_us(),
                since_us=None if body.since is None else int(body.since.timestamp() * 1e6),
                audit_share=own.audit_share,
                group_s=own.label_group_s,
                blocks=blocks,
            )

        with engine.connect() as connection:  # choosing takes a while and needs no write lock
            found = choose(connection)
        with write(engine) as connection:
            if not labels.queue_labels(connection, found):  # somebody was faster: now under the lock
                found = choose(connection)
                labels.queue_labels(connection, found)
        return {"requests": [REQUEST.body(item) for item in found.requests]}
