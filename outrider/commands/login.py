"""``outrider login``: a one-time link to the web page."""

from typing import Any

import typer

from .api import Api, connect
from .output import Config, Json, as_json


def login(config: Config = None, json: Json = False) -> None:
    """Print a link that opens the page once.

    The browser has the rights of the key that asks.
    """
    api = connect(config)
    made = _ask(api)
    page = api.url + made["path"]
    if json:
        as_json({"page": page, "until": made["until"], "key": made["key"]})
        return
    until = made["until"][11:16]
    typer.echo(f"This link works once, until {until} UTC, with the rights of key {made['key']!r}:", err=True)
    typer.echo(page)


def one_time_link(api: Api) -> tuple[str, str]:
    """URL that opens the page once, and its time of expiry."""
    made = _ask(api)
    return api.url + made["path"], made["until"]


def _ask(api: Api) -> Any:
    return api.post("/v1/logins", {})
