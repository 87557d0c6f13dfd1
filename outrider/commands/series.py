"""``outrider series``: metrics of a model over time, by judged version."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from outrider.assertions.statistics.performance import figure_text

from .api import connect, one_model
from .durations import seconds
from .output import Config, Json, ModelArgument, as_json, table

_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 32
"""Maximum number of bars in a sparkline."""
_COLUMNS = {
    "series": "series",
    "version": "version",
    "slice": "slice",
    "figure": "figure, 95 % interval",
    "before": "before",
    "trend": "trend",
}


def series(
    model: ModelArgument = None,
    measure: Annotated[
        list[str] | None, typer.Option(help="records, flags, live_tests, latency …; several may be named.")
    ] = None,
    performance: Annotated[
        bool, typer.Option(help="Accuracy, F1, AUROC, Brier and calibration, or MAE and RMSE, instead.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Only of this assertion or live test.")] = None,
    version: Annotated[str | None, typer.Option(help="Only of this judged version.")] = None,
    slice: Annotated[str | None, typer.Option(help="Only of records of this slice.")] = None,
    by: Annotated[str | None, typer.Option(help="slice: each slice by itself.")] = None,
    since: Annotated[str | None, typer.Option(help="Time (ISO 8601), or 6h, 7d: so long ago.")] = None,
    until: Annotated[str | None, typer.Option(help="Time (ISO 8601); default now.")] = None,
    step: Annotated[str | None, typer.Option(help="5m, 1h, 1d …; default what fits.")] = None,
    versus: Annotated[str | None, typer.Option(help="previous, day or week: compare with that.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show metrics of a model over time, by judged version."""
    if performance and (measure or name):
        raise typer.BadParameter("--performance has no --measure and no --name")
    api = connect(config)
    asked: dict[str, Any] = {"version": version, "slice": slice, "by": by, "until": until}
    asked |= {"since": time_of(since), "step": step, "versus": versus}
    if not performance:
        asked |= {"measure": measure, "name": name}
    path = f"/v1/models/{one_model(api, model)}/{'performance' if performance else 'series'}"
    found = api.get(path, **asked)
    if json:
        as_json(found)
        return
    typer.echo(
        f"{found['model']}: {minute(found['since'])} to {minute(found['until'])} UTC, "
        f"steps of {found['step_s']} s"
    )
    if found["quiet_since"]:
        typer.echo(f"no records since {minute(found['quiet_since'])} UTC")
    if found["note"]:
        typer.echo(found["note"])
    if found["slices_left_out"]:
        typer.echo(f"{found['slices_left_out']} slices of fewer records are left out: --slice NAME shows one")
    rows = [_row(each) for each in found["series"] if each["whole"]["value"] is not None]
    hidden = [column for column in ("slice", "before") if not any(row[column] for row in rows)]
    columns = {column: title for column, title in _COLUMNS.items() if column not in hidden}
    table(rows, columns, empty="nothing was counted in this range")
    for event in found["events"]:
        typer.echo(f"  {minute(event['at'])}  {event['text']}")


def time_of(text: str | None, *, now: datetime | None = None) -> str | None:
    """Time for a request: ``7d`` becomes seven days ago, other texts stay.

    Examples
    --------
    >>> time_of("1h", now=datetime(2026, 1, 2, 3, tzinfo=UTC)), time_of("2026-01-01T00:00:00Z")
    ('2026-01-02T02:00:00+00:00', '2026-01-01T00:00:00Z')
    """
    if text is None or not re.fullmatch(r"\d+(?:\.\d+)?[smhd]", text.strip()):
        return text
    return ((now or datetime.now(UTC)) - timedelta(seconds=seconds(text))).isoformat()


def sparkline(values: Sequence[float | None]) -> str:
    """Values as bars; a dot for an unknown value.

    Examples
    --------
    >>> sparkline([0.0, 0.5, None, 1.0]), sparkline([2.0, 2.0]), sparkline([])
    ('▁▅·█', '▁▁', '')
    """
    width = -(-len(values) // _POINTS) or 1
    parts = [
        [one for one in values[at : at + width] if one is not None] for at in range(0, len(values), width)
    ]
    means = [sum(part) / len(part) if part else None for part in parts]
    known = [one for one in means if one is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join("·" if one is None else _BARS[round((one - low) * scale + 1e-9)] for one in means)


def _row(each: Mapping[str, Any]) -> dict[str, Any]:
    whole, before = each["whole"], each["versus"]
    measure = each["measure"] if each["measure"] != "performance" else ""
    statistic = "" if each["statistic"] in ("share", "count") else each["statistic"]
    method = " (weighted)" if each["method"] == "weighted" else ""
    return {
        "series": " ".join(filter(None, (measure, each["name"], statistic))),
        "version": each["version"] or "-",
        "slice": each["slice"] or "",
        "figure": figure_text(each["statistic"], whole["value"], whole["low"], whole["high"]) + method,
        "before": "" if before is None else figure_text(each["statistic"], before["whole"]["value"]),
        "trend": sparkline(each["value"]),
    }


def minute(text: str) -> str:
    """Time without seconds, for display."""
    return text[:16].replace("T", " ")
