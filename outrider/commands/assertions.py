"""``outrider assertions``: the assertions and live tests of a running service."""

from typing import Annotated

import typer

from .api import connect, one_model
from .output import Config, Json, as_json, table


def assertions(
    model: Annotated[str | None, typer.Argument(help="Model; may be left out when there is one.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """List assertions and live tests with their counts, rates and precision."""
    api = connect(config)
    found = api.get("/v1/assertions", model=one_model(api, model))
    if json:
        as_json(found)
        return
    columns = {
        "name": "assertion",
        "kind": "kind",
        "level": "level",
        "flags": "flags of the champion",
        "description": "finds",
    }
    rows = [row | {"flags": row["flags"].get("champion", 0)} for row in found["assertions"]]
    table(rows, columns, empty="the service offers no assertions: see docs/assertions.md")
