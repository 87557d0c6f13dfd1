"""``outrider rollback``: makes the previous champion champion again."""

from typing import Annotated

import typer

from .api import connect
from .output import Config, Json, tell


def rollback(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    reason: Annotated[
        str, typer.Option(help="Reason, kept with the version.")
    ] = "asked for on the command line",
    config: Config = None,
    json: Json = False,
) -> None:
    """Make the version that the champion replaced champion again."""
    found = connect(config).post(f"/v1/models/{model}/rollback", {"reason": reason})
    tell(found, f"{model}: version {found['version']} is champion again", json=json)
