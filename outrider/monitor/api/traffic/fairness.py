"""``GET /v1/fairness``: group metrics of stored records or dataset versions."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime
from sqlalchemy import Engine

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.references import open_version
from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.payloads.objects import ObjectStore
from outrider.errors import NotFound
from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.queries.fairness import FairnessFigures, dataset_figures, figures_json, stored_figures
from outrider.monitor.settings.config import Settings


class FairnessReport(FairnessFigures):
    """Metrics by group of newest records, or of a dataset version."""

    model: str
    dataset: str | None


def fairness_routes(
    engine: Engine, settings: Settings, objects: ObjectStore, blocks: BlockSource
) -> APIRouter:
    """Routes about groups."""

    def fairness(
        model: str,
        by: Annotated[list[str], Query(min_length=1)],
        positive: str = "1",
        since: AwareDatetime | None = None,
        dataset: str | None = None,
    ) -> FairnessReport:
        """Metrics by group: of the newest stored records, or of a dataset version (``NAME@VERSION``)."""
        configured = known_model(settings, model)
        try:
            with engine.connect() as connection:
                if dataset is None:
                    since_us = None if since is None else int(since.timestamp() * 1e6)
                    found = stored_figures(
                        connection, blocks, model=model, by=by, positive=positive, since_us=since_us
                    )
                else:
                    version = open_version(connection, dataset)
                    if version.model != model:
                        raise NotFound(f"dataset {dataset} is of model {version.model!r}, not of {model!r}")
                    rows = datasets.read(connection, objects, version)
                    found = dataset_figures(rows, by=by, positive=positive, target=configured.target)
        except KeyError as error:
            raise ProblemError(problem(422, str(error.args[0]), field="by")) from error
        except ValueError as error:
            raise ProblemError(problem(422, str(error), field="positive")) from error
        return {"model": model, "dataset": dataset, **figures_json(found)}

    router = APIRouter(prefix="/v1", tags=["read"])
    router.add_api_route("/fairness", fairness, methods=["GET"], response_model=Declared[FairnessReport])
    return router
