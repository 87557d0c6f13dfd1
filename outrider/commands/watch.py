"""``outrider watch``: comparison of a new champion with the former one."""

from typing import Annotated

import typer

from .api import connect
from .output import Config, Json, as_json


def watch(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, newest first.")] = 1,
    check: Annotated[bool, typer.Option(help="Exit with 1 where a rollback is proposed.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show the comparison of a new champion with the former one."""
    found = connect(config).get(f"/v1/models/{model}/watch", limit=limit)
    if json:
        as_json(found)
    elif not found["watches"]:
        typer.echo("no champion was watched yet: a promotion begins a watch")
    else:
        for one in found["watches"]:
            typer.echo(f"{one['began']}  {one['sentence']}")
            for name, sentence in one["sentences"].items():
                typer.echo(f"  {name}: {sentence}")
    newest = found["watches"][0] if found["watches"] else {"ended": "", "proposed": None}
    if check and not newest["ended"] and newest["proposed"]:
        raise typer.Exit(1)
