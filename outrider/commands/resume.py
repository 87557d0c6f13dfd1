"""``outrider resume``: shadow models or live tests go on."""

import typer

from .api import connect
from .output import Config, Json, as_json
from .pause import OfModel, Rests


def resume(what: Rests, model: OfModel = "", config: Config = None, json: Json = False) -> None:
    """Let what was paused go on; what came meanwhile is judged first."""
    ended = connect(config).post("/v1/pauses/resume", {"what": what.value, "model": model})
    if json:
        as_json(ended)
        return
    for row in ended["pauses"]:
        typer.echo(f"{what.value} of {row['model'] or 'every model'}: goes on, paused since {row['since']}")
