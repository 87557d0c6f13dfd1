"""``outrider history``: champions of a model."""

from typing import Annotated

import typer

from .api import connect
from .output import Config, Json, as_json, table

COLUMNS = {
    "at": "since",
    "until": "until",
    "version": "version",
    "action": "action",
    "replaced": "replaced",
    "by": "by",
    "reason": "reason",
}


def history(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 50,
    before: Annotated[int | None, typer.Option(help="Only what came before this number.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show changes of the champion with actor and reason, newest first."""
    found = connect(config).get(f"/v1/models/{model}/history", limit=limit, before=before)
    if json:
        as_json(found)
        return
    table(found["changes"], COLUMNS, empty=f"{model} has no champion yet")
    if found["next"] is not None:
        typer.echo(f"older changes: --before {found['next']}")
