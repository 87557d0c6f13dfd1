"""``outrider slices``: slices of a model's newest records with many errors."""

from typing import Annotated, Any

import typer

from .api import connect, one_model
from .output import Config, Json, ModelArgument, as_json, table


def slices(
    model: ModelArgument = None,
    outcome: Annotated[
        str,
        typer.Option(help="wrong, flagged, or an assertion; wrong where there are labels enough."),
    ] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column to search, such as attrs.region (may be repeated); all by default."),
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only records from this time on (ISO 8601).")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Find slices on which a model is wrong, or flagged, more often."""
    api = connect(config)
    name = one_model(api, model)
    found = api.get(f"/v1/models/{name}/slices", outcome=outcome or None, column=column, since=since)
    if json:
        as_json(found)
        return
    typer.echo(f"{name}: {_headline(found)}")
    proven = [_row(each) for each in found["slices"] if each["proven"]]
    table(
        proven,
        {"slice": "slice", "rate": found["outcome"], "rest": "elsewhere", "rows": "of records",
         "share": "of the traffic", "p": "p"},
        empty="no slice is proven to be worse than the rest",
    )  # fmt: skip
    for name, why in found["left_out"].items():
        typer.echo(f"  not searched: {name}: {why}")


def _headline(found: dict[str, Any]) -> str:
    if found["note"]:
        return str(found["note"])
    gone = f", {found['expired']:,} more have no payload any more" if found["expired"] else ""
    held = f"; holds for {found['stretch']}" if found["stretch"] else ""
    return (
        f"{found['rate']:.2%} {found['outcome']} of {found['proven_on']:,} records, searched on "
        f"{found['records'] - found['proven_on']:,} others{gone}{held}"
    )


def _row(each: dict[str, Any]) -> dict[str, Any]:
    return each | {
        "rate": f"{each['rate']:.1%} [{each['low']:.1%}, {each['high']:.1%}]",
        "rest": f"{each['rest']:.1%}",
        "share": f"{each['share']:.1%}",
        "p": f"{each['p']:.2g}",
    }
