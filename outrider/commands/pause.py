"""``outrider pause``: pause shadow models or live tests, never capture."""

import getpass
from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from .api import connect
from .output import Config, Json, tell


class What(StrEnum):
    """Work that can be paused."""

    shadow = "shadow"
    live_tests = "live-tests"


Paused: TypeAlias = Annotated[What, typer.Argument(help="shadow: all judging; live-tests: their questions.")]
OfModel: TypeAlias = Annotated[str, typer.Option("--model", help="Only of this model; default every model.")]


def pause(
    what: Paused,
    model: OfModel = "",
    who: Annotated[str | None, typer.Option(help="Shown with the pause; default your user name.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Pause shadow models or live tests.

    Records and labels are still accepted.
    """
    body = {"what": what.value, "model": model, "who": _user() if who is None else who}
    row = connect(config).post("/v1/pauses", body)
    tell(
        row,
        f"{what.value} of {model or 'every model'}: paused since {row['since']}"
        f"{' by ' + row['who'] if row['who'] else ''}; capture goes on",
        json=json,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return ""
