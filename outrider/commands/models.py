"""``outrider models``: list versions with their status, and retire one."""

from typing import Annotated
from urllib.parse import quote

import typer

from .api import connect
from .default_group import listing
from .output import Config, Json, ModelArgument, as_json, table, tell

app = listing("List versions with their status; take one out of the shadow.")
COLUMNS = {"model": "model", "version": "version", "status": "status", "created": "made", "note": "note"}


@app.command("list")
def list_versions(model: ModelArgument = None, config: Config = None, json: Json = False) -> None:
    """List versions of models, in the order of creation."""
    found = connect(config).get("/v1/models", model=model)
    if json:
        as_json(found)
    else:
        table(found["models"], COLUMNS, empty="no version yet")


@app.command()
def retire(
    version: Annotated[str, typer.Argument(help="Version, as NAME@V.", metavar="NAME@V")],
    reason: Annotated[str, typer.Option(help="Reason, kept with the version.")] = "",
    config: Config = None,
    json: Json = False,
) -> None:
    """Stop shadowing a version, even one that hangs.

    Never the champion: promote another version, or roll back.
    """
    model, at, own = version.rpartition("@")
    if not at or not model or not own:
        raise typer.BadParameter(f"a version as NAME@V expected, got {version!r}", param_hint="NAME@V")
    path = f"/v1/models/{quote(model, safe='')}/versions/{quote(own, safe='')}/retire"
    found = connect(config).post(path, {"reason": reason})
    tell(found, f"{model}: version {found['version']} is {found['status']}: {found['note']}", json=json)
