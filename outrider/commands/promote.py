"""``outrider promote``: make a version the champion."""

from typing import Annotated

import typer

from .api import connect
from .output import Config, Json, tell


def promote(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    version: Annotated[str, typer.Argument(help="Version that becomes champion.")],
    force: Annotated[bool, typer.Option(help="Promote without a pass of the gate, as an override.")] = False,
    reason: Annotated[str, typer.Option(help="Reason, kept in the history; needed with --force.")] = "",
    config: Config = None,
    json: Json = False,
) -> None:
    """Make a version the champion.

    Exit code 1 when the gate did not pass the version.
    """
    body = {"version": version, "force": force, "reason": reason}
    found = connect(config).post(f"/v1/models/{model}/promote", body)
    tell(
        found,
        f"{model}: version {found['version']} is champion; it replaced {found['replaced'] or '-'}",
        json=json,
    )
