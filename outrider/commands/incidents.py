"""``outrider incidents``: list, acknowledge, mute and resolve incidents."""

from typing import Annotated, Any

import typer

from .api import connect
from .default_group import listing
from .durations import seconds
from .output import Config, Json, as_json, table

app = listing("List incidents (the default); acknowledge, mute or resolve them.")
COLUMNS = {
    "id": "incident",
    "status": "status",
    "level": "level",
    "model": "model",
    "assertion": "assertion",
    "kind": "kind",
    "slice": "slice",
    "flags": "flags",
    "opened": "opened",
    "last_flag": "last kept open",
    "sentence": "what",
    "next_step": "proposed",
}
Incident = Annotated[str, typer.Argument(help="Id of the incident.")]
Note = Annotated[str, typer.Option(help="Note for others.")]


@app.command("list")
def list_incidents(
    model: Annotated[str | None, typer.Argument(help="Only incidents of this model.")] = None,
    status: Annotated[
        str, typer.Option(help="current, open, acknowledged, muted, resolved or all.")
    ] = "current",
    assertion: Annotated[str | None, typer.Option(help="Only incidents of this assertion.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 50,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show incidents, newest first."""
    query = {"model": model, "status": status, "assertion": assertion, "limit": limit}
    found = connect(config).get("/v1/incidents", **query)
    if json:
        as_json(found)
    else:
        table(found["incidents"], COLUMNS, empty="no incident")


@app.command()
def ack(incident: Incident, note: Note = "", config: Config = None, json: Json = False) -> None:
    """Acknowledge an incident; silence still resolves the incident."""
    _act(incident, {"action": "acknowledge", "note": note}, config, json=json)


@app.command()
def mute(
    incident: Incident,
    until: Annotated[str | None, typer.Option(help="ISO 8601.")] = None,
    for_: Annotated[str | None, typer.Option("--for", help="90s, 30m, 2h or 1d.")] = None,
    note: Note = "",
    config: Config = None,
    json: Json = False,
) -> None:
    """Mute an assertion in a slice for some time.

    A flag after that time opens an incident again.
    """
    body = {"action": "mute", "until": until, "for_s": None if for_ is None else seconds(for_), "note": note}
    _act(incident, body, config, json=json)


@app.command()
def resolve(incident: Incident, note: Note = "", config: Config = None, json: Json = False) -> None:
    """Resolve an incident; a recurrence opens another one."""
    _act(incident, {"action": "resolve", "note": note}, config, json=json)


def _act(incident: str, body: dict[str, Any], config: Any, *, json: bool) -> None:
    found = connect(config).post(f"/v1/incidents/{incident}", body)
    if json:
        as_json(found)
    else:
        until = f" until {found['muted_until']}" if found["muted_until"] else ""
        typer.echo(
            f"{found['id']} ({found['assertion']}, {found['slice'] or 'all'}) is {found['status']}{until}"
        )
