"""``outrider resume``: resume shadow models or live tests."""

import typer

from .api import connect
from .output import Config, Json, as_json
from .pause import OfModel, Paused


def resume(what: Paused, model: OfModel = "", config: Config = None, json: Json = False) -> None:
    """Resume paused work, including records that arrived during the pause."""
    ended = connect(config).post("/v1/pauses/resume", {"what": what.value, "model": model})
    if json:
        as_json(ended)
        return
    goes_on = "its own pause has ended" if ended["still"] else "goes on"
    for row in ended["pauses"]:
        typer.echo(f"{what.value} of {row['model'] or 'every model'}: {goes_on}, paused since {row['since']}")
    for row in ended["still"]:
        typer.echo(
            f"{what.value} of every model: still paused since {row['since']}; resume it without --model"
        )
