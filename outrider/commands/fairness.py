"""``outrider fairness``: metrics by group, over time or for a dataset version."""

from typing import Annotated, Any

import typer

from .api import connect, one_model
from .output import Config, Json, ModelArgument, as_json, table
from .series import minute, sparkline, time_of

COLUMNS = {
    "selection_rate": "selected",
    "tpr": "true positive rate",
    "fpr": "false positive rate",
    "ppv": "precision",
    "accuracy": "accuracy",
}


def fairness(
    model: ModelArgument = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Column that names the group; several intersect. Default: the first of group_by."),
    ] = None,
    positive: Annotated[str, typer.Option(help="The answer that is a selection.")] = "1",
    version: Annotated[str | None, typer.Option(help="Of this judged version; default the newest.")] = None,
    since: Annotated[str | None, typer.Option(help="Time (ISO 8601), or 6h, 7d: so long ago.")] = None,
    until: Annotated[str | None, typer.Option(help="Time (ISO 8601); default now.")] = None,
    step: Annotated[str | None, typer.Option(help="5m, 1h, 1d …; default what fits.")] = None,
    versus: Annotated[str | None, typer.Option(help="previous, day or week: compare with that.")] = None,
    dataset: Annotated[str | None, typer.Option(help="A dataset version, NAME@VERSION, instead.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show selection rates, error rates and accuracy by group, with their gaps."""
    api = connect(config)
    name = one_model(api, model)
    asked = {"version": version, "since": time_of(since), "until": until, "step": step, "versus": versus}
    found = api.get("/v1/fairness", model=name, by=by, positive=positive, dataset=dataset, **asked)
    if json:
        as_json(found)
        return
    how = ", weighed back from the labels that were asked for" if found["labels_were_asked_for"] else ""
    of = f" of version {found['version']}" if found["version"] else ""
    typer.echo(
        f"{name}: {found['records']:,} records{of}, {found['labelled']:,} labelled{how}; selected: {positive}"
    )
    over_time = found["over_time"]
    if over_time:
        span = f"{minute(over_time['since'])} to {minute(over_time['until'])} UTC"
        typer.echo(f"{span}, steps of {over_time['step_s']} s")
    known = {
        key: title
        for key, title in COLUMNS.items()
        if any(key in each["metrics"] for each in found["groups"])
    }
    table(
        [_row(each) for each in found["groups"]],
        {"group": "group", "records": "records"} | known,
        empty="no records yet",
    )
    for gap in found["gaps"]:
        if gap["value"] is not None:
            typer.echo(f"  {COLUMNS[gap['metric']]}: {_gap(gap)}{_trend(found, gap['metric'])}")
    for event in over_time["events"] if over_time else ():
        typer.echo(f"  {minute(event['at'])}  {event['text']}")


def _trend(found: dict[str, Any], metric: str) -> str:
    """Gap over time, and in the period of comparison."""
    for row in found["over_time"]["series"] if found["over_time"] else ():
        if (row["statistic"], row["version"]) == (f"{metric}_gap", found["version"]):
            value = None if row["versus"] is None else row["versus"]["whole"]["value"]
            before = "" if value is None else f"; before {value:.3f}"
            return f"{before}  {sparkline(row['value'])}"
    return ""


def _row(group: dict[str, Any]) -> dict[str, Any]:
    return group | {name: _interval(metric) for name, metric in group["metrics"].items()}


def _interval(metric: dict[str, Any]) -> str:
    if metric["value"] is None:
        return "-"
    return f"{metric['value']:.3f} [{metric['low']:.3f}, {metric['high']:.3f}] n={metric['rows']}"


def _gap(gap: dict[str, Any]) -> str:
    text = (
        f"gap {gap['value']:.3f} [{gap['low']:.3f}, {gap['high']:.3f}], {gap['highest']} over {gap['lowest']}"
    )
    if gap["ratio"] is not None:
        text += f"; ratio {gap['ratio']:.2f} [{gap['ratio_low']:.2f}, {gap['ratio_high']:.2f}]"
    return text + (f"; too few of {', '.join(gap['left_out'])}" if gap["left_out"] else "")
