"""``outrider rollback``: make a former champion champion again."""

from typing import Annotated

import typer

from .api import connect
from .output import Config, Json, tell


def rollback(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    to: Annotated[
        str | None, typer.Option(help="Former champion; by default the one that was replaced.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason, kept in the history.")] = "",
    config: Config = None,
    json: Json = False,
) -> None:
    """Make a former champion champion again."""
    found = connect(config).post(f"/v1/models/{model}/rollback", {"reason": reason, "to": to})
    tell(found, f"{model}: version {found['version']} is champion again", json=json)
