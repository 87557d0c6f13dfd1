"""``outrider alarms``: watched streams and their distance from an alarm."""

from typing import Annotated, Any

import typer

from .api import connect
from .output import Config, Json, as_json, table

COLUMNS = {
    "stream": "stream",
    "status": "status",
    "before": "before",
    "now": "now",
    "entities": "entities",
    "nearness": "to an alarm",
    "text": "evidence",
}


def alarms(
    model: Annotated[str | None, typer.Option(help="Only of this model; all by default.")] = None,
    limit: Annotated[
        int,
        typer.Option(min=1, max=10_000, help="Maximum streams per model, nearest to an alarm first."),
    ] = 40,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show watched streams with their distance from an alarm.

    Exit code 1 if an incident is open or acknowledged.
    """
    api = connect(config)
    names = [model] if model is not None else [str(row["model"]) for row in api.get("/v1/fleet")["models"]]
    found = [api.get(f"/v1/models/{name}/alarms", limit=limit) for name in names]
    if json:
        as_json({"models": found})
    for report in [] if json else found:
        typer.echo(f"{report['model']}: {report['sentence']}")
        table([_row(each) for each in report["streams"]], COLUMNS, empty="nothing is watched")
        further = sum(report["statuses"].values()) - len(report["streams"])
        if further > 0:
            typer.echo(f"{further} further streams are quieter: --limit shows more")
    if any(report["standing"] for report in found):
        raise typer.Exit(1)


def _row(each: dict[str, Any]) -> dict[str, Any]:
    where = "" if each["slice"] is None else f" on {each['slice'] or 'no slice'}"
    where += "" if each["version"] is None else f" of version {each['version']}"
    text = each["text"] if each["incident"] is None else f"{each['incident']}: {each['text']}"
    return {
        "stream": f"{each['kind'].replace('_', ' ')}: {each['name']}{where}",
        "status": each["status"].replace("_", " "),
        "before": _share(each["before"]),
        "now": _share(each["now"]),
        "entities": None if each["now"] is None else f"{each['now']['seen']:,}",
        "nearness": f"{each['nearness']:.0%}",
        "text": text,
    }


def _share(share: dict[str, Any] | None) -> str | None:
    if share is None:
        return None
    return f"{share['share']:.1%} ({share['low']:.1%} to {share['high']:.1%})"
