"""``outrider sessions``: list and end open browser sessions."""

from typing import Annotated

import typer

from .api import connect
from .default_group import listing
from .output import Config, Json, as_json, table, tell

app = listing("List open sessions of browsers (the default); end one.")
COLUMNS = {
    "id": "session",
    "key": "key",
    "created": "since",
    "last_used": "last used",
    "until": "ends",
    "address": "from",
    "agent": "browser",
}


@app.command("list")
def list_sessions(config: Config = None, json: Json = False) -> None:
    """Show open sessions of your key, newest first; admins see all."""
    found = connect(config).get("/v1/sessions")
    if json:
        as_json(found)
    else:
        table(found["sessions"], COLUMNS, empty="no session is open")


@app.command()
def end(
    session: Annotated[str, typer.Argument(help="Id of the session.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """End a session at once."""
    found = connect(config).post(f"/v1/sessions/{session}/end", {})
    tell(found, f"session {found['id']} of key {found['key']} has ended", json=json)
