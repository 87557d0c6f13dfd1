"""Charts of series as small SVGs, a line per version or group."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from outrider.assertions.statistics.performance import figure_text
from outrider.assertions.times import utc_text
from outrider.dataops.ledger.stated_values import version_words

from .answer import FigureColumns, SeriesFacts, SeriesReport

WIDTH, HEIGHT = 320.0, 84.0
MOST_LINES = 7
_ZOOMED = frozenset({"accuracy", "f1", "auroc", "auroc_weighted", "tpr", "ppv"})
"""Figures far from zero, whose charts begin where their intervals do."""
Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """Line of one judged version or group, in colour ``shade``: points of unbroken parts, intervals,
    and the compared time."""

    name: str
    shade: int
    lines: tuple[str, ...]
    bands: tuple[str, ...]
    before: tuple[str, ...]
    text: str
    before_text: str


@dataclass(frozen=True, slots=True)
class SeriesChart:
    """Chart of one figure of all judged versions; ``marks`` are place and sentence of events."""

    title: str
    unit: str
    low: str
    high: str
    lines: tuple[ChartLine, ...]
    marks: tuple[tuple[float, str], ...]
    shaded: tuple[float, float, str] | None = None


def version_shades(reports: Iterable[SeriesReport]) -> dict[str, int]:
    """Colours of the versions with lines: those with the most records of the newest step, then of all."""
    records: dict[str, tuple[int, int]] = {}
    for row in chain.from_iterable(report["series"] for report in reports):
        own = row["records"][-1], row["whole"]["records"]
        records[row["version"]] = max(own, records.get(row["version"], own))
    most = sorted(records, key=lambda version: records[version])[-MOST_LINES:]
    return {version: at + 1 for at, version in enumerate(one for one in records if one in most)}


def series_charts(
    report: SeriesReport, titles: Mapping[tuple[str, str], str], shades: Mapping[str, int]
) -> list[SeriesChart]:
    """Charts of the series that have a title, one per name; versions of ``shades`` have lines."""
    groups: dict[tuple[str, str, str], list[SeriesFacts]] = {}
    for row in report["series"]:
        if (row["measure"], row["statistic"]) in titles and row["version"] in shades:
            groups.setdefault((row["measure"], row["statistic"], row["name"]), []).append(row)
    marks = tuple(_marks(report))
    found = [
        _chart(
            titles[measure, statistic] + (f" {name}" if name else ""),
            {version_words(row["version"]): row for row in rows},
            marks,
            [shades[row["version"]] for row in rows],
        )
        for (measure, statistic, name), rows in groups.items()
    ]
    return [chart for chart in found if chart is not None]


def group_charts(report: SeriesReport, version: str, titles: Mapping[str, str]) -> list[SeriesChart]:
    """Charts of one version's rates, a line for each of the largest groups, in the same colours
    everywhere."""
    rows = [row for row in report["series"] if row["version"] == version]
    known = {row["name"]: row["whole"]["records"] for row in rows if row["statistic"] == "selection_rate"}
    most = sorted(sorted(known, key=lambda name: -known[name])[:MOST_LINES])
    marks = tuple(_marks(report))
    found = []
    for statistic, title in titles.items():
        own = {row["name"]: row for row in rows if row["statistic"] == statistic}
        named = {name: own[name] for name in most if name in own} or own
        found.append(_chart(title, named, marks, range(1, len(named) + 1)))
    return [chart for chart in found if chart is not None]


def _chart(
    title: str,
    named: Mapping[str, SeriesFacts],
    marks: tuple[tuple[float, str], ...],
    shades: Sequence[int],
) -> SeriesChart | None:
    shaded = [
        (name, row, shade)
        for (name, row), shade in zip(named.items(), shades, strict=True)
        if row["whole"]["value"] is not None
    ][-MOST_LINES:]
    if not shaded:
        return None
    rows = [row for _, row, _ in shaded]
    statistic = rows[0]["statistic"]
    bounds = _bounds(rows, is_zoomed=statistic in _ZOOMED)
    lines = tuple(_line(name, row, shade, bounds) for name, row, shade in shaded)
    low, high = (figure_text(statistic, one) for one in bounds)
    return SeriesChart(title, rows[0]["unit"], low, high, lines, marks)


def _line(name: str, row: SeriesFacts, shade: int, bounds: Bounds) -> ChartLine:
    statistic, before = row["statistic"], row["versus"]
    whole = row["whole"]
    has_band = statistic not in ("count", "sum")
    return ChartLine(
        name,
        shade,
        tuple(_parts(row["value"], bounds)),
        tuple(_bands(row, bounds)) if has_band else (),
        () if before is None else tuple(_parts(before["value"], bounds)),
        figure_text(statistic, whole["value"], whole["low"], whole["high"]),
        "" if before is None else figure_text(statistic, before["whole"]["value"]),
    )


def _bounds(rows: Sequence[SeriesFacts], *, is_zoomed: bool) -> Bounds:
    """Ends of the scale by values: intervals of few records are as wide as the figure may be."""
    sides: list[FigureColumns] = [side for row in rows for side in (row, row["versus"]) if side is not None]
    values = [one for side in sides for one in side["value"] if one is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    if is_zoomed:
        room = max(0.02, 0.15 * (high - low))
        return math.floor(max(0.0, low - room) * 50) / 50, math.ceil(min(1.0, high + room) * 50) / 50
    room = 1.0 if 1.0 / 1.1 < high <= 1.0 else high * 1.1  # a share is no more than all
    return min(0.0, low), room if high > 0 else 1.0


def _parts(values: Sequence[float | None], bounds: Bounds) -> list[str]:
    """Points of each run of known values; a lone one is a line of no length, drawn as a dot."""
    found: list[list[str]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            found.append([])
        else:
            found[-1].append(f"{_x(at, len(values))},{_y(value, bounds)}")
    return [" ".join(part if len(part) > 1 else part * 2) for part in found if part]


def _bands(row: FigureColumns, bounds: Bounds) -> list[str]:
    runs: list[list[tuple[float, float, float]]] = [[]]
    for at, (low, high) in enumerate(zip(row["low"], row["high"], strict=True)):
        if low is None or high is None:
            runs.append([])
        else:
            runs[-1].append((_x(at, len(row["low"])), _y(high, bounds), _y(low, bounds)))
    return [
        " ".join([*(f"{x},{top}" for x, top, _ in run), *(f"{x},{end}" for x, _, end in reversed(run))])
        for run in runs
        if len(run) > 1
    ]


def place_in(report: SeriesReport, at_us: int) -> float:
    since, until = (datetime.fromisoformat(report[end]).timestamp() for end in ("since", "until"))
    return round(WIDTH * (at_us / 1e6 - since) / (until - since), 1)


def _marks(report: SeriesReport) -> list[tuple[float, str]]:
    return [
        (place_in(report, event.at_us), f"{event.text}, {utc_text(event.at_us)[:16]}Z")
        for event in report["events"]
    ]


def _x(at: int, points: int) -> float:
    return round(WIDTH * (at + 0.5) / points, 1)


def _y(value: float, bounds: Bounds) -> float:
    low, high = bounds
    share = (min(max(value, low), high) - low) / max(high - low, 1e-12)
    return round(HEIGHT * (1.0 - share), 1)
