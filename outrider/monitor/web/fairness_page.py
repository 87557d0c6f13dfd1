"""Page of groups: metrics over time, and as dots with intervals."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Engine

from outrider.behavioral_tests.fairness import GroupGap, GroupRate, Metric
from outrider.dataops.ledger.group_columns import attribute_of, columns_of
from outrider.monitor.queries.fairness import GroupFigures, rarest_answer, stored_figures
from outrider.monitor.queries.series.answer import SeriesReport
from outrider.monitor.queries.series.groups import answers_of, grouped_by
from outrider.monitor.queries.series.span import SeriesSpan

from .series_chart import SeriesChart, group_charts
from .series_view import chosen_range

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
