"""Output of commands as JSON or tables, and their common options."""

import json as json_format
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from rich.console import Console

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Write the result as JSON to stdout.")]
Config: TypeAlias = Annotated[
    Path | None, typer.Option(help="Configuration file.", show_default="outrider.toml")
]
_ONE_MODEL = "Model; may be left out when there is one."
ModelArgument: TypeAlias = Annotated[str | None, typer.Argument(help=_ONE_MODEL)]
HashOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--hash",
        help="Column that a placeholder takes the place of, or of the kinds of values in it: "
        "inputs.text=email,card (may be repeated).",
    ),
]
DELIMITER = "Separator of CSV files: ';', tab, '|'."
DECIMAL = "Decimal mark of numbers in CSV files."
Delimiter: TypeAlias = Annotated[str | None, typer.Option(help=DELIMITER)]
Decimal: TypeAlias = Annotated[str, typer.Option(help=DECIMAL)]
TextColumns: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--text", help="CSV columns to read as text, with commas between; may be repeated."),
]
ModelOption: TypeAlias = Annotated[str | None, typer.Option(help=_ONE_MODEL)]


_WIDE = 500  # letters


def console() -> "Console":
    """Console for tables; outside a terminal, lines are never cut or wrapped."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=_WIDE)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8; raises ConfigError on failure."""
    from outrider.errors import ConfigError

    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error


def as_json(value: Any) -> None:
    typer.echo(json_format.dumps(value, indent=2))


def tell(found: Any, text: str, *, json: bool) -> None:
    """Print ``text``, or ``found`` as JSON if ``json`` is set."""
    typer.echo(json_format.dumps(found, indent=2) if json else text)


def printable(text: str, *, keeps_lines: bool = False) -> str:
    """Text without control characters, which could manipulate the terminal."""
    return "".join(
        sign if sign.isprintable() or (keeps_lines and sign in "\n\t") else "\N{REPLACEMENT CHARACTER}"
        for sign in text
    )


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], *, empty: str) -> None:
    """Print rows as a table; ``columns`` maps keys to headings.

    The first column is cut last on a narrow terminal.
    """
    from rich.table import Table

    found = list(rows)
    screen = console()
    if not found:
        screen.print(empty, markup=False, highlight=False)
        return
    shown = Table(*columns.values())
    for row in found:
        cells = (printable(_text(row.get(key)), keeps_lines=True) for key in columns)
        shown.add_row(*(cell.replace("[", r"\[") for cell in cells))
    named = max(screen.measure(cell).maximum for cell in shown.columns[0].cells)
    shown.columns[0].no_wrap = named <= screen.width // 2
    screen.print(shown)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
