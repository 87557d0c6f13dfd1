"""``outrider dataset leaks``: equal or similar rows of two dataset versions."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.dataset_reference import DatasetPart
from outrider.errors import ConfigError

from .api import Api, connect
from .dataset_rows import rows_of, version_of
from .output import Config, Json, as_json

if TYPE_CHECKING:
    from outrider.assertions import Batch
    from outrider.dataops.datasets.leak_moves import LeakReport


def leaks(
    name: Annotated[str, typer.Argument(help="Dataset, or dataset@version; the newest by default.")],
    other: Annotated[
        str | None, typer.Argument(help="Another one; without it the train and held-out rows of the first.")
    ] = None,
    part: Annotated[DatasetPart | None, typer.Option(help="Only these rows of the first.")] = None,
    other_part: Annotated[DatasetPart | None, typer.Option(help="Only these rows of the other.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Input to compare by; all that both have by default.")
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Find rows of one dataset version that leak into another.

    Entities of both, equal inputs, near-duplicate texts and numbers. Exit code 1 where any leaks; rows that
    repeat about as often within a version are named, but are no leak.
    """
    from outrider.dataops.datasets.leaks import find_leaks, leak_words, sides

    if other is None and (part or other_part):
        raise ConfigError("--part and --other-part need two datasets: one alone is split into its own parts")
    api = connect(config)
    first = _rows(api, name, part or (None if other else "train"))
    second = _rows(api, other or name, other_part if other else "held_out")
    if first[0] == second[0]:
        raise ConfigError(f"{first[0]} with itself: two versions or parts expected")
    left, right = sides(
        dict([first, second]), tuple(f"inputs.{n.removeprefix('inputs.')}" for n in column or ())
    )
    if not left.inputs and column:
        raise ConfigError(f"--column {', '.join(column)}: an input of both expected")
    found = find_leaks(left, right)
    if json:
        as_json({"rows": {side.name: side.batch.rows for side in (left, right)}, "leaks": found})
    else:
        typer.echo("\n".join(leak_words(found)) or f"{left.name} and {right.name}: no leak")
        _tell_pairs(found)
    if any(not leak["usual"] for leak in found):
        raise typer.Exit(1)


def tell_report(report: "LeakReport") -> None:
    from outrider.dataops.datasets.leak_moves import report_words

    typer.echo("\n".join(report_words(report)) or "no leak and no repeated row was found at the commit")
    _tell_pairs([*report["leaks"], *report["repeats"]])


def _rows(api: Api, name: str, part: DatasetPart | None) -> "tuple[str, Batch]":
    version = version_of(api, name)
    shown = f"{version['dataset']}@{version['number']}" + (f" {part.replace('_', ' ')}" if part else "")
    return shown, rows_of(api, version, part)


def _tell_pairs(found: Any) -> None:
    for leak in found:
        for pair in leak["pairs"]:
            typer.echo(f"  {leak['kind']}: {pair[0]} and {pair[1]}")
