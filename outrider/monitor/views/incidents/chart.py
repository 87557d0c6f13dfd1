"""Charts of an incident's stream, with its onset shaded."""

from dataclasses import replace

from outrider.assertions.times import utc_text
from outrider.monitor.views.series.chart import WIDTH, SeriesChart, place_in, series_charts, version_shades

from .reader import IncidentView

_TITLES = {
    ("records", "count"): "Records",
    ("flagged", "share"): "Share of entities flagged by",
    ("live_tests", "share"): "Failures of",
    ("performance", "accuracy"): "Accuracy",
    ("performance", "f1"): "F1 (macro)",
    ("performance", "mae"): "Mean absolute error",
    ("labelled", "share"): "Labels arrived",
}
LEAST_WIDTH = 3.0
"""Of a shaded stretch, that it is seen."""


def incident_charts(view: IncidentView) -> list[SeriesChart]:
    """Charts of the stream; empty where nothing is counted."""
    report = view.chart
    if report is None:
        return []
    marks = [(view.row.opened_us, "incident opened")]
    if view.row.resolved_us is not None:
        marks.append((view.row.resolved_us, "incident resolved"))
    own = tuple((place_in(report, at), f"{what}, {utc_text(at)[:16]}Z") for at, what in marks)
    shaded = _shaded(view)
    return [
        replace(chart, marks=(*chart.marks, *own), shaded=shaded)
        for chart in series_charts(report, _TITLES, version_shades([report]))
    ]


def _shaded(view: IncidentView) -> tuple[float, float, str] | None:
    if view.chart is None or view.onset_us is None:
        return None
    first, last = (min(max(place_in(view.chart, at), 0.0), WIDTH) for at in view.onset_us)
    begin, end = (utc_text(at)[:16].replace("T", " ") for at in view.onset_us)
    return first, max(LEAST_WIDTH, round(last - first, 1)), f"onset between {begin} and {end} UTC"
