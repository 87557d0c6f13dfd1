"""``outrider init``: write a runnable project into an empty folder."""

from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from outrider.parts import lack_of, missing_parts

_RENAMED = {"gitignore": ".gitignore"}  # packaging tools leave out files that start with a dot


class Modality(StrEnum):
    """Kind of the model's input."""

    tabular = "tabular"
    text = "text"
    image = "image"
    chat = "chat"


class Starter(StrEnum):
    """Model that ``outrider init`` writes into a text project."""

    words = "words"
    """Logistic regression on words; the project's own function trains it."""
    bert = "bert"
    """Hugging Face model, fine-tuned with LoRA."""


_PARTS: dict[Modality | Starter, tuple[str, ...]] = {
    Modality.tabular: ("sklearn",),
    Modality.image: ("torch", "sklearn"),
    Modality.chat: ("sklearn",),
    Starter.words: ("sklearn",),
    Starter.bert: ("torch", "hf"),
}
"""Parts of the installation that a starter model needs."""
_WHY = {
    Starter.words: "a function of words; with transformers and peft installed (outrider[hf]), a BERT",
    Starter.bert: "a BERT that learns by LoRA, since transformers and peft are installed; or --starter words",
}


def starter_of(modality: Modality, asked: Starter | None) -> Starter | None:
    """Requested or installed starter of a text project; None for other modalities."""
    if modality is not Modality.text and asked is not None:
        raise ValueError(f"--starter {asked.value}: --modality text expected, got {modality.value}")
    if modality is Modality.text and asked is None:
        asked = Starter.words if missing_parts(_PARTS[Starter.bert]) else Starter.bert
    if lack := lack_of(_PARTS[asked or modality], f"the {(asked or modality).value} starter"):
        raise ValueError(lack + (", or --starter words" if asked is Starter.bert else ""))
    return asked


def write_project(folder: Path, modality: Modality, starter: Starter | None = None) -> list[Path]:
    """Write the files of a project and return their sorted paths. The folder must be empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"{folder} is not an empty folder; name one that is empty or does not exist yet"
        )
    names = ["common", modality.value]
    if modality is Modality.text:
        names.append(f"text_{(starter or Starter.words).value}")
    templates = files("outrider") / "templates"
    written: list[Path] = []
    for name in names:
        _copy(templates / name, folder, written)
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


def train_starter(folder: Path) -> None:
    """Run ``train`` of a project's ``train.py``; raises ConfigError with file and line."""
    from outrider.errors import ConfigError
    from outrider.user_code import load_callable, raised_in

    train = load_callable("train.py:train", folder.resolve())
    try:
        train()
    except Exception as error:
        raise ConfigError(
            f"{raised_in(folder.resolve() / 'train.py', error)}; the project is written, `python train.py` "
            "tries again"
        ) from error


def init(
    folder: Annotated[Path, typer.Argument(help="An empty folder, or one to be made.")] = Path(),
    modality: Annotated[Modality, typer.Option(help="Kind of the model's input.")] = Modality.tabular,
    starter: Annotated[
        Starter | None,
        typer.Option(help="Of text: a function of words, or a Hugging Face folder, where that is installed."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the result as JSON to stdout.")] = False,
) -> None:
    """Write a runnable, commented project: configuration, model, assertions and behavioral tests."""
    try:
        own = starter_of(modality, starter)
        written = write_project(folder, modality, own)
    except (FileExistsError, ValueError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    if modality is Modality.image or own is Starter.bert:  # others are trained on first use
        typer.echo("training the starter model: some seconds", err=True)
        train_starter(folder)
    names = [str(path.relative_to(folder)) for path in written]
    if json:
        import json as json_format

        found = {"folder": str(folder.resolve()), "modality": modality.value, "files": names}
        typer.echo(json_format.dumps(found | ({} if own is None else {"starter": own.value})))
        return
    typer.echo(f"{folder.resolve()}: {', '.join(names)}")
    if own is not None and starter is None:
        typer.echo(f"starter: {_WHY[own]}")
    cd = "" if folder == Path() else f"cd {folder} && "
    typer.echo(f"next: {cd}pytest        asks the starter model its behavioral tests")
    typer.echo(f"      {cd}outrider serve    watches live traffic")
    typer.echo("      README.md goes once round: a fault, labels, a better version, the gate;")
    typer.echo("      then put your own model in its place: README.md says where, and what knows columns,")
    typer.echo("      outrider check-config    runs everything on data/ and says what does not fit")
