"""``outrider columns``: columns of a model that the running service has learned."""

from typing import Annotated

import typer

from .api import connect, one_model
from .default_group import listing
from .output import Config, Json, ModelArgument, ModelOption, as_json, table, tell

app = listing("List the columns of a model (the default); drop learned ones.")
COLUMNS = {"name": "column", "type": "type", "state": "state", "values": "values"}
RARE = {"name": "rare field", "values": "values"}


@app.command("list")
def list_columns(model: ModelArgument = None, config: Config = None, json: Json = False) -> None:
    """Show columns with their types, and rare fields.

    Rare fields share one JSON column.
    """
    api = connect(config)
    found = api.get("/v1/columns", model=one_model(api, model))
    if json:
        as_json(found)
        return
    table(found["columns"], COLUMNS, empty="no column yet: no record came, and none is declared")
    if found["rare"]:
        table(found["rare"], RARE, empty="")
    typer.echo(f"{found['used']} of {found['limit']} columns (limits.columns)")


@app.command()
def forget(
    names: Annotated[list[str], typer.Argument(help="Full names, such as attrs.clinic.")],
    model: ModelOption = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Forget learned columns; stored values stay.

    The next value of a column adds the column again.
    """
    api = connect(config)
    found = api.post("/v1/columns/forget", {"model": one_model(api, model), "names": names})
    tell(found, f"{found['model']}: forgotten {', '.join(found['forgotten'])}", json=json)
