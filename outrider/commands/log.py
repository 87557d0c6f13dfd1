"""``outrider log``: changes, and the keys that asked for them."""

from typing import Annotated

import typer

from .api import connect
from .output import Config, Json, as_json, table

COLUMNS = {
    "at": "at",
    "key": "key",
    "action": "action",
    "path": "path",
    "status": "status",
    "address": "from",
    "session": "session",
}


def log(
    key: Annotated[str | None, typer.Option(help="Only what this key did.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 50,
    before: Annotated[int | None, typer.Option(help="Only what came before this id.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show changes and the keys that asked for them, newest first.

    Records and labels that senders deliver are in the journal, not here.
    """
    found = connect(config).get("/v1/log", key=key, limit=limit, before=before)
    if json:
        as_json(found)
    else:
        table(found["writes"], COLUMNS, empty="nothing was changed")
