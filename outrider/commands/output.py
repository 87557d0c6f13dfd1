"""What commands print: JSON for programs, tables for people; options that all of them take."""

import json as json_format
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Write the result as JSON to stdout.")]
Config: TypeAlias = Annotated[
    Path | None, typer.Option(help="Configuration file.", show_default="outrider.toml")
]


def as_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json_format.dumps(value, indent=2))


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], *, empty: str) -> None:
    """Print rows; ``columns`` maps keys to headings; ``empty`` is said when there is none."""
    from rich.console import Console
    from rich.table import Table

    found = list(rows)
    console = Console()
    if not found:
        console.print(empty, markup=False, highlight=False)
        return
    shown = Table(*columns.values())
    for row in found:
        shown.add_row(*(_text(row.get(key)).replace("[", r"\[") for key in columns))
    console.print(shown)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
