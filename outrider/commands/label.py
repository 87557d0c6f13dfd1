"""``outrider label``: the label queue, and labels given by hand."""

import json as json_format
from typing import Annotated, Any
from uuid import uuid4

import typer

from .api import connect
from .default_group import Commands
from .output import Config, Json, as_json, table, tell

app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Show the label queue, request labels, or give labels."
)
COLUMNS = {
    "record_id": "record",
    "model": "model",
    "reason": "chosen for",
    "policy": "policy",
    "round": "round",
    "is_labelled": "labelled",
}
SHOWN = 10
"""Maximum number of selected records that a request prints."""
Model = Annotated[str, typer.Argument(help="Name of the model.")]


@app.command("list")
def list_requests(
    model: Annotated[str | None, typer.Option(help="Only requests of this model.")] = None,
    status: Annotated[str, typer.Option(help="open, labelled or all.")] = "open",
    config: Config = None,
    json: Json = False,
) -> None:
    """Show the label queue."""
    found = connect(config).get("/v1/label-requests", model=model, status=status)
    _show(found, "no request is open" if status == "open" else "no request", json=json)


@app.command()
def request(
    model: Model,
    budget: Annotated[int | None, typer.Option(help="How many; labels.budget by default.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="adaptive, bal, uniform, badge, uncertainty or random.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only records from this time on, ISO 8601.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Select flagged records for the label queue."""
    body = {"model": model, "budget": budget, "policy": policy, "since": since}
    nothing = (
        "nothing to choose: every record that the policy looks at has a label or was asked for; records just "
        "sent are judged first, within seconds: `outrider assertions` counts their flags"
    )
    found = connect(config).post("/v1/label-requests", body)
    _show(found, nothing, json=json, most=SHOWN)


@app.command()
def estimate(model: Model, config: Config = None, json: Json = False) -> None:
    """Estimate accuracy and precision on the traffic, from requested labels."""
    found = connect(config).get(f"/v1/models/{model}/estimates")
    if json:
        as_json(found)
        return
    if found.get("note"):
        typer.echo(f"no estimate: {found['note']}")
        return
    shares = {"accuracy": found["accuracy"]}
    shares |= {f"precision of {name}": share for name, share in found["precision"].items()}
    rows = [{"figure": name} | share for name, share in shares.items()]
    table(rows, {name: name for name in ("figure", "value", "low", "high", "labels", "method")}, empty="")
    if not found["accuracy"]["labels"]:
        typer.echo(f"labels sent unasked say nothing of the traffic: `outrider label request {model}`")


@app.command()
def give(
    model: Model,
    record: Annotated[str, typer.Argument(help="Id of the record.")],
    value: Annotated[
        str | None, typer.Argument(help="Right answer: a number, true, false, or a text.")
    ] = None,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Take back the labels of the record, in place of VALUE.")
    ] = False,
    field: Annotated[str, typer.Option(help="Label field, the model's target.")] = "label",
    source: Annotated[str, typer.Option(help="Source of the label.")] = "human",
    config: Config = None,
    json: Json = False,
) -> None:
    """Label a record, or withdraw its label.

    A record without a label leaves the dataset with its next version.
    """
    if (value is None) != withdraw:
        raise typer.BadParameter("the right answer or --withdraw expected, not both", param_hint="VALUE")
    answer = None if value is None else parsed(value)
    body: dict[str, object] = {
        "model": model,
        "id": record,
        "label": {field: answer},
        "source": source,
        "key": uuid4().hex,
    }
    found = connect(config).post("/v1/labels", body)
    sentence = f"label of {record} withdrawn" if withdraw else f"{record}: {field} = {answer!r} taken"
    tell(found, sentence, json=json)


def parsed(value: str) -> Any:
    """Number or boolean that a text spells, else the text."""
    try:
        found = json_format.loads(value)
    except ValueError:
        return value
    return found if isinstance(found, bool | int | float) else value


def _show(found: dict[str, Any], nothing: str, *, json: bool, most: int | None = None) -> None:
    if json:
        as_json(found)
        return
    rows = found["requests"]
    table(rows[:most], COLUMNS, empty=nothing)
    if most is not None and len(rows) > most:
        typer.echo(f"and {len(rows) - most} more: `outrider label list` shows all")
