"""``outrider comparisons``: list and remove comparisons that the service keeps."""

from typing import Annotated

import typer

from .api import connect
from .default_group import listing
from .output import Config, Json, as_json, table, tell

app = listing("List comparisons that the service keeps (the default); remove one.")
COLUMNS = {
    "id": "comparison",
    "kept": "kept",
    "candidate": "candidate",
    "verdict": "verdict",
    "records": "compared",
}


@app.command("list")
def list_comparisons(config: Config = None, json: Json = False) -> None:
    """Show kept comparisons, newest first, a line for each candidate."""
    found = connect(config).get("/v1/comparisons")
    if json:
        as_json(found)
        return
    lines = [one | each for one in found["comparisons"] for each in one["candidates"]]
    table(lines, COLUMNS, empty="no comparison is kept")


@app.command()
def remove(
    comparison: Annotated[str, typer.Argument(help="Id of the comparison.")],
    labels: Annotated[bool, typer.Option(help="Remove its labels, too, where it has any.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Remove a comparison with the content of its pairs."""
    found = connect(config).delete(f"/v1/comparisons/{comparison}", labels=str(labels).lower())
    tell(found, f"comparison {found['id']} is removed", json=json)
