"""Charts of the overview, over the range that its address names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from sqlalchemy import Engine

from .answer import SeriesReport, SeriesRequest, performance_json, series_json
from .chart import SeriesChart, series_charts, version_shades
from .counts import SeriesCut
from .measures import KINDS
from .span import Versus

HOUR_US = 3_600_000_000
RANGES: Mapping[str, tuple[str, int]] = {
    "1h": ("hour", HOUR_US),
    "6h": ("6 hours", 6 * HOUR_US),
    "1d": ("day", 24 * HOUR_US),
    "7d": ("7 days", 168 * HOUR_US),
    "30d": ("30 days", 720 * HOUR_US),
    "90d": ("90 days", 2160 * HOUR_US),
}
COMPARED: Mapping[str, str] = {
    "previous": "the time before",
    "day": "the day before",
    "week": "the week before",
}
_TITLES = {
    ("records", "count"): "Records",
    ("flags", "share"): "Flags of",
    ("live_tests", "share"): "Failures of",
    ("agreement", "share"): "Agreement with the champion",
    ("latency", "p95"): "Latency, 95 %",
    ("errors", "share"): "Calls with an error",
    ("output_tokens", "sum"): "Output tokens",
    ("cost", "sum"): "Cost",
    ("performance", "accuracy"): "Accuracy",
    ("performance", "f1"): "F1 (macro)",
    ("performance", "auroc"): "AUROC",
    ("performance", "auroc_weighted"): "AUROC (weighted)",
    ("performance", "calibration"): "Calibration error",
    ("performance", "mae"): "Mean absolute error",
    ("performance", "rmse"): "RMSE",
    ("labelled", "share"): "Labels arrived",
}


@dataclass(frozen=True, slots=True)
class SeriesView:
    """Charts with the range and the comparison that were chosen."""

    report: SeriesReport
    """Of records and flags, whose steps are the finest."""
    coarse_s: int
    """Step of performance and calls."""
    charts: tuple[SeriesChart, ...]
    chosen: Mapping[str, str]
    versions: int
    """Judged ones, of which some have lines."""
    fault: str
    """Sentence on an address that asks for what cannot be; empty where it can."""
    notes: tuple[str, ...] = ()
    """Warnings about how figures are read."""


def read_series_view(engine: Engine, model: str, asked: Mapping[str, str], *, now_us: int) -> SeriesView:
    """Charts for the query of an address: ``range``, ``versus``, ``slice``."""
    request, chosen, fault = chosen_range(asked, now_us=now_us)
    chosen |= {"slice": asked.get("slice", "") if not fault else ""}
    cut = SeriesCut(model, slice=chosen["slice"] or None)
    try:
        reports = _reports(engine, cut, request)
    except ValueError as error:
        fault = str(error).partition(": ")[2]
        reports = _reports(engine, cut, replace(request, versus=None))
    shades = version_shades(reports)
    charts = [chart for report in reports for chart in series_charts(report, _TITLES, shades)]
    versions = {row["version"] for report in reports for row in report["series"]}
    notes = tuple(note for report in reports if (note := report["note"]))
    return SeriesView(reports[0], reports[-1]["step_s"], tuple(charts), chosen, len(versions), fault, notes)


def chosen_range(asked: Mapping[str, str], *, now_us: int) -> tuple[SeriesRequest, dict[str, str], str]:
    """Range and comparison of an address, or its fault."""
    chosen = {name: asked.get(name, "") for name in ("range", "versus")}
    if fault := _fault(chosen):
        chosen = dict.fromkeys(chosen, "")
    since = now_us - RANGES[chosen["range"]][1] if chosen["range"] else None
    versus = next((one for one in get_args(Versus) if one == chosen["versus"]), None)
    return SeriesRequest(since_us=since, versus=versus, now_us=now_us), chosen, fault


def _fault(chosen: Mapping[str, str]) -> str:
    if chosen["range"] and chosen["range"] not in RANGES:
        return f"range: one of {', '.join(RANGES)} expected, got {chosen['range']!r}"
    if chosen["versus"] and chosen["versus"] not in get_args(Versus):
        return f"versus: one of {', '.join(get_args(Versus))} expected, got {chosen['versus']!r}"
    return ""


def _reports(engine: Engine, cut: SeriesCut, asked: SeriesRequest) -> list[SeriesReport]:
    """Counts, performance and measures."""
    with engine.connect() as connection:
        return [
            series_json(connection, cut, asked, measures=("records", "flags")),
            performance_json(connection, cut, asked),
            series_json(connection, cut, asked, measures=tuple(KINDS)),
        ]
