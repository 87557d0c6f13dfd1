"""``outrider init``: a runnable project for one's model in an empty folder."""

from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

_RENAMED = {"gitignore": ".gitignore"}  # packaging tools leave out files that start with a dot


class Modality(StrEnum):
    """Input of the model."""

    tabular = "tabular"
    text = "text"
    image = "image"
    chat = "chat"


def write_project(folder: Path, modality: Modality) -> list[Path]:
    """Write the files of a project and return their paths, sorted.

    Raises
    ------
    FileExistsError
        If the folder is not empty; nothing is written then.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"{folder} is not an empty folder; name one that is empty or does not exist yet"
        )
    templates = files("outrider") / "templates"
    written: list[Path] = []
    for source in (templates / "common", templates / modality.value):
        _copy(source, folder, written)
    return sorted(written)


def _copy(source: Traversable, target: Path, written: list[Path]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir():
            _copy(entry, target / entry.name, written)
        elif entry.name.endswith(".tmpl"):
            name = entry.name.removesuffix(".tmpl")
            path = target / _RENAMED.get(name, name)
            path.write_bytes(entry.read_bytes())
            written.append(path)


def init(
    folder: Annotated[Path, typer.Argument(help="An empty folder, or one to be made.")] = Path(),
    modality: Annotated[Modality, typer.Option(help="Kind of the model's input.")] = Modality.tabular,
    json: Annotated[bool, typer.Option("--json", help="Write the result as JSON to stdout.")] = False,
) -> None:
    """Write a runnable, commented project: configuration, model, assertions and behavioral tests."""
    try:
        written = write_project(folder, modality)
    except FileExistsError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    names = [str(path.relative_to(folder)) for path in written]
    if json:
        import json as json_format

        typer.echo(
            json_format.dumps({"folder": str(folder.resolve()), "modality": modality.value, "files": names})
        )
        return
    typer.echo(f"{folder.resolve()}: {', '.join(names)}")
    cd = "" if folder == Path() else f"cd {folder} && "
    typer.echo(f"next: {cd}pytest        asks the starter model its behavioral tests")
    typer.echo(f"      {cd}outrider serve    watches live traffic")
    typer.echo("      then put your own model into model.py; README.md names what else knows its columns,")
    typer.echo("      outrider check-config    runs everything on data/ and says what does not fit")
