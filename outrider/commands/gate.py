"""``outrider gate``: verdicts of the promotion gate."""

import textwrap
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .api import connect
from .output import Config, Json, as_json, printable


def gate(
    model: Annotated[str | None, typer.Argument(help="Only verdicts on this model.")] = None,
    limit: Annotated[int, typer.Option(help="How many, newest first.")] = 5,
    check: Annotated[
        bool, typer.Option(help="Exit with 1 unless the newest candidate passed, 6 if undecided.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show the verdicts of the promotion gate with their reasons."""
    found = connect(config).get("/v1/gates", model=model, limit=limit)
    verdicts = found["gates"]
    if json:
        as_json(found)
    elif not verdicts:
        typer.echo("no verdict of the gate yet")
    else:
        for verdict in verdicts:
            typer.echo(
                f"{verdict['created']}  {verdict['model']} {verdict['candidate']} against "
                f"{verdict['champion']}: {verdict['outcome']}{_policy(verdict['evidence'])}"
            )
            for reason in verdict["reasons"]:
                typer.echo(textwrap.indent(printable(reason, keeps_lines=True), "  "))
    evidence = verdicts[0]["evidence"] if verdicts else {}
    if check and not evidence.get("passed"):
        raise typer.Exit(6 if evidence.get("undecided") else 1)


def _policy(evidence: Mapping[str, Any]) -> str:
    """File name and shortened digest of the policy that a verdict used."""
    policy = evidence["policy"]
    named = " ".join(filter(None, (policy["file"], policy["digest"][:12])))
    return f" (policy {named})" if named else ""
