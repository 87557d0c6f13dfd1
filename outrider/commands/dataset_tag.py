"""``outrider dataset tag``: names of dataset versions."""

from typing import Annotated, ClassVar

import typer

from .api import connect
from .default_group import ListByDefault
from .output import Config, Json, table, tell


class _AddByDefault(ListByDefault):
    default: ClassVar[str] = "add"

    def _near(self, word: str) -> str | None:  # noqa: ARG002 - whatever is no command is a dataset
        return None


app = typer.Typer(cls=_AddByDefault, help="Name a version: NAME VERSION TAG; list and remove tags.")
COLUMNS = {"tag": "tag", "version": "version", "set": "since"}
Name = Annotated[str, typer.Argument(help="Name of the dataset.")]


@app.command()
def add(
    name: Name,
    version: Annotated[str, typer.Argument(help="Number, other tag or time of the version.")],
    tag: Annotated[str, typer.Argument(help="Its name: dataset@TAG is the version from now on.")],
    move: Annotated[bool, typer.Option("--move", help="Take the tag from another version.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Give a version a tag."""
    found = connect(config).post(f"/v1/datasets/{name}/tags", {"tag": tag, "version": version, "moves": move})
    tell(found, f"{name}@{tag} is version {found['version']}", json=json)


@app.command("list")
def list_tags(name: Name, config: Config = None, json: Json = False) -> None:
    """List the tags of a dataset."""
    found = connect(config).get(f"/v1/datasets/{name}/tags")
    if json:
        tell(found, "", json=True)
    else:
        table(found["tags"], COLUMNS, empty=f"no tag yet: `outrider dataset tag {name} VERSION TAG` sets one")


@app.command()
def remove(
    name: Name,
    tag: Annotated[str, typer.Argument(help="The tag.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """Remove a tag; its version stays."""
    found = connect(config).post(f"/v1/datasets/{name}/tags/{tag}/remove", {})
    tell(found, f"version {found['version']} of {name} is no longer {tag}", json=json)
