"""``outrider triggers``: why retrainings did or did not start."""

from typing import Annotated, Any

import typer

from .api import connect
from .output import Config, Json, as_json


def triggers(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Evaluations of the log, newest first.")] = 10,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show triggers of retraining, and why each did or did not fire."""
    found = connect(config).get(f"/v1/models/{model}/triggers", limit=limit)
    if json:
        as_json(found)
        return
    _head(found)
    for one in found["suggestions"]:
        typer.echo(f"suggested since {_minute(one['since'])}: {one['why']}; `{one['command']}`")
    for one in found["triggers"]:
        last = one["last"]
        text = f"{last['outcome']}: {last['why']}" if last else "not evaluated yet"
        typer.echo(f"  {one['trigger']}  {text}")
    if found["evaluations"]:
        typer.echo("log, newest first")
    for row in found["evaluations"]:
        times = "" if row["times"] == 1 else f", {row['times']} times since {_minute(row['since'])}"
        job = f" ({row['job']})" if row["job"] else ""
        typer.echo(f"  {_minute(row['until'])}  {row['trigger']} {row['outcome']}{times}: {row['why']}{job}")


def _head(found: dict[str, Any]) -> None:
    guards = found["guards"]
    if not found["enabled"]:
        typer.echo(f"{found['model']}: no trigger is evaluated; set retrain.enabled")
        return
    what = "start runs" if guards["mode"] == "automatic" else "only suggest runs"
    spent = f"{guards['runs_today']} of {guards['daily_budget']} in 24 hours"
    held = f"; held: {guards['held']}" if guards["held"] else ""
    typer.echo(f"{found['model']}: triggers {what} ({spent}){held}")


def _minute(at: str) -> str:
    return at[:16] + "Z"
