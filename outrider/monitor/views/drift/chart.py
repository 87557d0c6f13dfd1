"""Charts of a drift report, column by column, and its self-contained page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.assertions.statistics.performance import number_text
from outrider.monitor.web.rendering import Pages

WIDTH, HEIGHT = 300.0, 84.0
_ROW = 18.0
"""Height of a category's row."""


@dataclass(frozen=True, slots=True)
class DistributionChart:
    """Points of an SVG of one column.

    Attributes
    ----------
    before, after
        Corners of the reference's line and the current window's area; empty for categories.
    ends
        Smallest and largest value shown.
    rows
        Categories with top, and widths of both bars; empty for numbers.
    height
        Of the drawing.
    """

    before: str
    after: str
    ends: tuple[str, str]
    rows: tuple[tuple[str, float, float, float], ...]
    height: float


def drift_page(report: Mapping[str, Any]) -> str:
    """Self-contained page of a report.

    Parameters
    ----------
    report
        ``DriftReport.to_dict()`` with ``windows``, the texts that named both.
    """
    return Pages().standalone("drift.html", {"r": report, "charts": charts_of(report)})


def charts_of(report: Mapping[str, Any]) -> dict[str, DistributionChart | None]:
    """Chart of every column."""
    return {each["column"]: distribution_chart(each["distribution"]) for each in report["columns"]}


def distribution_chart(found: Mapping[str, Any] | None) -> DistributionChart | None:
    """Chart of shares in the same bars; None without a distribution."""
    if found is None:
        return None
    before, after = found["reference"], found["current"]
    most = max([*before, *after, 1e-9])
    if not found["edges"]:
        rows = tuple(
            (name, at * _ROW, 100 * one / most, 100 * two / most)
            for at, (name, one, two) in enumerate(zip(found["names"], before, after, strict=True))
        )
        return DistributionChart("", "", ("", ""), rows, _ROW * len(rows))
    ends = number_text(found["edges"][0]), number_text(found["edges"][-1])
    area = f"0,{HEIGHT} {_steps(after, most)} {WIDTH:.0f},{HEIGHT}"
    return DistributionChart(_steps(before, most), area, ends, (), HEIGHT)


def _steps(shares: Sequence[float], most: float) -> str:
    step = WIDTH / len(shares)
    heights = [HEIGHT - (HEIGHT - 2) * share / most for share in shares]
    return " ".join(
        f"{(at + side) * step:.1f},{height:.1f}" for at, height in enumerate(heights) for side in (0, 1)
    )
