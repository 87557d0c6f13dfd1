"""``outrider flags``: flags of a model, newest first."""

from typing import Annotated

import typer

from outrider.errors import NotFound, nearest

from .api import connect, one_model
from .output import Config, Json, ModelArgument, as_json, table

COLUMNS = {
    "record_id": "record",
    "slice": "slice",
    "assertion": "assertion",
    "level": "level",
    "severity": "severity",
    "slot": "slot",
    "predicted": "predicted",
    "label": "label",
}


def flags(
    model: ModelArgument = None,
    assertion: Annotated[str | None, typer.Option(help="Only this assertion or live test.")] = None,
    slot: Annotated[str | None, typer.Option(help="champion, or the version of a challenger.")] = None,
    level: Annotated[str | None, typer.Option(help="info, warning or critical.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 20,
    after: Annotated[str | None, typer.Option(help="Continue after the last answer: its `after`.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show flags, newest first."""
    api = connect(config)
    name = one_model(api, model)
    query = {"assertion": assertion, "slot": slot, "level": level, "limit": limit, "after": after}
    found = api.get("/v1/flags", model=name, **query)
    if json:
        as_json(found)
        return
    if not found["flags"] and assertion is not None:
        known = [each["name"] for each in api.get("/v1/assertions", model=name)["assertions"]]
        if assertion not in known:
            raise NotFound(f"{name} has no flag and no assertion {assertion!r}{nearest(assertion, known)}")
    is_narrow = any(value is not None for value in (assertion, slot, level, after))
    table(found["flags"], COLUMNS, empty=f"no such flag of {name}" if is_narrow else f"no flag of {name} yet")
    if found["after"]:
        typer.echo(f"more: --after {found['after']}")
