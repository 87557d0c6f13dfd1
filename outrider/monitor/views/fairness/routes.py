"""Routes of group metrics, with the data of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Query, Request
from pydantic import AwareDatetime
from sqlalchemy import Connection, Engine
from starlette.responses import Response

from outrider.behavioral_tests.fairness import GroupGap, GroupRate, Metric
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.references import open_version
from outrider.dataops.ledger.group_columns import attribute_of, columns_of
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import page, view
from outrider.monitor.views.series.answer import SeriesReport
from outrider.monitor.views.series.chart import SeriesChart, group_charts
from outrider.monitor.views.series.groups import answers_of, grouped_by
from outrider.monitor.views.series.page import COMPARED, RANGES, chosen_range
from outrider.monitor.views.series.routes import series_request
from outrider.monitor.views.series.span import SeriesSpan, Versus
from outrider.monitor.views.service import Service

from .reader import (
    FairnessFigures,
    GroupFigures,
    dataset_figures,
    figures_json,
    rarest_answer,
    stored_figures,
)

_PARAMETERS = ("since", "until", "step", "versus")


class FairnessReport(FairnessFigures):
    """Metrics by group over time, or of a dataset version."""

    model: str
    dataset: str | None
    version: str | None
    over_time: SeriesReport | None


@view("/v1/fairness", scope="read")
def fairness(
    service: Service,
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
    configured, over_time = service.model(model), None
    by = by or _declared(model, configured.group_by)
    asked = series_request(since, until, step, versus)
    try:
        with service.engine.connect() as connection:
            if dataset is None:
                found, over_time = stored_figures(
                    connection, model=model, by=by, positive=positive, asked=asked, version=version,
                    declared=configured.group_by,
                )  # fmt: skip
            else:
                found = _of_dataset(
                    connection, service.objects, dataset, model, by, positive, configured.target
                )
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


TITLES: dict[Metric, tuple[str, str]] = {
    "selection_rate": ("Selection rate", "share of the group that gets this answer; needs no label"),
    "tpr": ("True positive rate", "share of the records with this label that get this answer"),
    "fpr": ("False positive rate", "share of the records with another label that get this answer"),
    "ppv": ("Precision", "share of those with this answer who are it"),
    "accuracy": ("Accuracy", "share of right answers"),
}
_CHARTS: dict[str, str] = {metric: title for metric, (title, _) in TITLES.items()}
_CHARTS |= {f"{metric}_gap": f"{title}: gap" for metric, (title, _) in TITLES.items()}
MOST_ANSWERS = 50


@dataclass(frozen=True, slots=True)
class MetricView:
    """Metric with its dots and its gap."""

    title: str
    explained: str
    rates: tuple[GroupRate, ...]
    gap: GroupGap


@dataclass(frozen=True, slots=True)
class FairnessPage:
    """Page data; ``figures`` None where unchosen, or for ``problem``."""

    columns: tuple[str, ...]
    answers: tuple[str, ...]
    by: str
    positive: str
    chosen: Mapping[str, str] = field(default_factory=dict)
    figures: GroupFigures | None = None
    report: SeriesReport | None = None
    metrics: tuple[MetricView, ...] = ()
    charts: tuple[SeriesChart, ...] = ()
    versions: tuple[str, ...] = ()
    problem: str = ""


def read_fairness(engine: Engine, model: str, query: Mapping[str, str], *, now_us: int) -> FairnessPage:
    """Read the page, by default of the first grouping and rarest answer."""
    asked, chosen, fault = chosen_range(query, now_us=now_us)
    chosen = {**chosen, "version": query.get("version", "")}
    with engine.connect() as connection:
        columns = tuple(grouped_by(connection, model))
        by = query.get("by") or next(iter(columns), "")
        answers = tuple(answers_of(connection, model, by, SeriesSpan(0, now_us + 1, 1)))[:MOST_ANSWERS]
        positive = query.get("positive") or rarest_answer(connection, model, by, asked)
        positive = positive or next(iter(answers), "")
        empty = FairnessPage(columns, answers, by, positive, chosen, problem=fault)
        if not by or not positive:
            return empty
        try:
            figures, report = stored_figures(
                connection, model=model, by=columns_of(attribute_of(by)), positive=positive, asked=asked,
                version=chosen["version"] or None,
            )  # fmt: skip
        except (KeyError, ValueError) as error:
            return FairnessPage(columns, answers, by, positive, chosen, problem=str(error.args[0]))
    gaps = {gap.metric: gap for gap in figures.gaps}
    views = tuple(
        MetricView(*TITLES[metric], tuple(rate for rate in figures.rates if rate.metric == metric), gap)
        for metric, gap in gaps.items()
    )
    charts = tuple(group_charts(report, figures.version or "", _CHARTS))
    versions = tuple(dict.fromkeys(row["version"] for row in report["series"]))
    return FairnessPage(
        columns, answers, by, positive, chosen, figures, report, views, charts, versions, fault
    )


@page("/m/{model}/fairness", scope="read")
def fairness_page(service: Service, request: Request, model: str) -> Response:
    """Selection and error rates by group, over time."""
    found = read_fairness(service.engine, model, request.query_params, now_us=now_us())
    context = {"f": found, "ranges": RANGES, "compared": COMPARED}
    return service.frame.page(request, "fairness.html", model, "/fairness", context)
