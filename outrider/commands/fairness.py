"""``outrider fairness``: metrics by group, of records or a dataset version.

Records are those of a running service.
"""

from typing import Annotated, Any

import typer

from .api import connect, one_model
from .output import Config, Json, ModelArgument, as_json, table

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
        list[str] | None, typer.Option(help="Column that names the group, such as sex; several intersect.")
    ] = None,
    positive: Annotated[str, typer.Option(help="The answer that is a selection.")] = "1",
    since: Annotated[str | None, typer.Option(help="Only records from this time on (ISO 8601).")] = None,
    dataset: Annotated[str | None, typer.Option(help="A dataset version, NAME@VERSION, instead.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show selection rates, error rates and accuracy by group, with their gaps."""
    if not by:
        raise typer.BadParameter("name a column that tells the groups apart, such as --by sex")
    api = connect(config)
    name = one_model(api, model)
    found = api.get("/v1/fairness", model=name, by=by, positive=positive, since=since, dataset=dataset)
    if json:
        as_json(found)
        return
    how = ", weighed back from the labels that were asked for" if found["labels_were_asked_for"] else ""
    typer.echo(
        f"{name}: {found['records']:,} records, {found['labelled']:,} labelled{how}; selected: {positive}"
    )
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
            typer.echo(f"  {COLUMNS[gap['metric']]}: {_gap(gap)}")


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
