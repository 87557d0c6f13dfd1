"""``GET /v1/fairness``: group metrics over time, or of a dataset version."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime
from sqlalchemy import Connection, Engine

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.references import open_version
from outrider.dataops.ledger.group_columns import attribute_of, columns_of
from outrider.dataops.payloads.objects import ObjectStore
from outrider.errors import NotFound
from outrider.monitor.http.common import known_model
from outrider.monitor.http.declared import Declared
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.queries.fairness import (
    FairnessFigures,
    GroupFigures,
    dataset_figures,
    figures_json,
    stored_figures,
)
from outrider.monitor.queries.series.answer import SeriesReport
from outrider.monitor.queries.series.span import Versus
from outrider.monitor.settings.config import Settings

from .series import series_request

_PARAMETERS = ("since", "until", "step", "versus")


class FairnessReport(FairnessFigures):
    """Metrics by group over time, or of a dataset version."""

    model: str
    dataset: str | None
    version: str | None
    over_time: SeriesReport | None


def fairness_routes(engine: Engine, settings: Settings, objects: ObjectStore) -> APIRouter:
    """Routes about groups."""

    def fairness(
        model: str,
        by: Annotated[list[str] | None, Query()] = None,
        positive: str = "1",
        version: str | None = None,
        since: AwareDatetime | None = None,
        until: AwareDatetime | None = None,
        step: str | None = None,
        versus: Versus | None = None,
        dataset: str | None = None,
    ) -> FairnessReport:
        """Metrics by group: over time, by judged version, or of a dataset version (``NAME@VERSION``).

        Without ``by``, of the first of ``group_by``.
        """
        configured, over_time = known_model(settings, model), None
        by = by or _declared(model, configured.group_by)
        asked = series_request(since, until, step, versus)
        try:
            with engine.connect() as connection:
                if dataset is None:
                    found, over_time = stored_figures(
                        connection, model=model, by=by, positive=positive, asked=asked, version=version,
                        declared=configured.group_by,
                    )  # fmt: skip
                else:
                    found = _of_dataset(connection, objects, dataset, model, by, positive, configured.target)
        except KeyError as error:
            raise ProblemError(problem(422, str(error.args[0]), field="by")) from error
        except ValueError as error:
            field, _, reason = str(error).partition(": ")
            if field not in _PARAMETERS:
                field, reason = "positive", str(error)
            raise ProblemError(problem(422, reason, field=field)) from error
        return {
            "model": model,
            "dataset": dataset,
            "version": found.version,
            "over_time": over_time,
            **figures_json(found),
        }

    router = APIRouter(prefix="/v1", tags=["read"])
    router.add_api_route("/fairness", fairness, methods=["GET"], response_model=Declared[FairnessReport])
    return router


def _declared(model: str, group_by: Sequence[str]) -> list[str]:
    """Columns of the first declared grouping."""
    if not group_by:
        told = f"a column that tells the groups apart is expected: `group_by` of {model} names none"
        raise ProblemError(problem(422, told, field="by"))
    return columns_of(attribute_of(group_by[0]))


def _of_dataset(
    connection: Connection,
    objects: ObjectStore,
    dataset: str,
    model: str,
    by: list[str],
    positive: str,
    target: str,
) -> GroupFigures:
    version = open_version(connection, dataset)
    if version.model != model:
        raise NotFound(f"dataset {dataset} is of model {version.model!r}, not of {model!r}")
    rows = datasets.read(connection, objects, version)
    return dataset_figures(rows, by=by, positive=positive, target=target)
