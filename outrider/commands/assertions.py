"""``outrider assertions``: list a service's assertions; group of further commands."""

from pathlib import Path
from typing import Annotated

import typer

from .api import connect, one_model
from .assertion_quality import listed, overlap, resume, show, suspend
from .calibrating import calibrate
from .default_group import listing
from .learning import accept, learn
from .output import Config, Json, ModelArgument, as_json, table, tell

app = listing("List a running service's assertions (the default), and manage them.")


@app.command("list")
def list_assertions(model: ModelArgument = None, config: Config = None, json: Json = False) -> None:
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
        "flags": "flags",
        "per_1000": "per 1,000",
        "precision": "precision",
        "state": "state",
        "description": "finds",
    }
    rows = [listed(row) for row in found["assertions"]]
    table(rows, columns, empty="the service offers no assertions: see docs/assertions.md")


app.command("show")(show)
app.command("overlap")(overlap)
app.command("suspend")(suspend)
app.command("resume")(resume)
app.command("learn")(learn)
app.command("accept")(accept)
app.command("calibrate")(calibrate)


@app.command()
def catalogue(
    to: Annotated[Path, typer.Option(help="Markdown file to write.")] = Path("docs/assertion-catalogue.md"),
    json: Json = False,
) -> None:
    """Write the catalogue of all library assertions from their docstrings.

    Needs no running service.
    """
    from outrider.assertions.catalogue import entries, markdown

    to.write_text(markdown(), encoding="utf-8")
    tell(
        {"file": str(to), "assertions": [entry.name for entry in entries()]},
        f"{len(entries())} assertions written to {to}",
        json=json,
    )
