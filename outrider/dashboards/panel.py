"""A panel of the Grafana dashboard, and the PromQL that panels share."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["timeseries", "stat", "table"]
Unit = Literal["short", "s", "bytes", "Bps", "percentunit", "reqps", "none"]

MODEL = 'model=~"$model"'
EACH = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; ``queries`` are (PromQL, legend)."""

    title: str
    description: str
    queries: tuple[tuple[str, str], ...]
    unit: Unit = "short"
    kind: Kind = "timeseries"
    width: int = 8
    """Of 24 columns."""


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A titled group of panels."""

    title: str
    panels: tuple[Panel, ...]


def rate(metric: str, by: str, *, where: str = MODEL) -> str:
    """Increase of a counter per second, by labels."""
    return f"sum by ({by}) (rate({metric}{{{where}}}{EACH}))"


def quantile(q: float, metric: str, *, by: str = "", where: str = "") -> str:
    """Quantile of a histogram, by a label."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{where}}}{EACH})))"


def per_1000(by: str, role: str) -> str:
    """Flags per 1,000 judged records of a role, by a label."""
    flags = rate("outrider_flags_total", f"model, {by}", where=f'{MODEL}, role="{role}"')
    judged = rate("outrider_records_judged_total", "model", where=f'{MODEL}, role="{role}"')
    return f"1000 * {flags} / on (model) group_left () {judged}"


def grouped(how: str, by: str, metric: str) -> str:
    """Sum, least or most of a metric of the chosen models."""
    return f"{how} by ({by}) ({metric}{{{MODEL}}})"
