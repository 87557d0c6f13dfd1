"""``outrider backup``: copy the data folder while the service runs."""

import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Config, Json, as_json

if TYPE_CHECKING:
    from outrider.dataops.backup.manifest import Manifest

EVERY_S = 1.0


def backup(
    destination: Annotated[Path, typer.Argument(help="Folder to make; it must not exist, or be empty.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """Copy the data folder while the service runs.

    Exit code 1 when objects in the folder are damaged.
    """
    from outrider.dataops.access.private_files import keep_files_private
    from outrider.dataops.backup.backup import back_up, note_backup
    from outrider.dataops.state.database import now_us
    from outrider.monitor.settings.config import accepted_settings, find_config

    keep_files_private()
    folder = accepted_settings(find_config(config)).data_folder
    made = back_up(folder, destination, release=_release(), now_us=now_us(), progress=ProgressLine())
    note_backup(folder, destination, now_us=made.created_us)
    show(made, destination, json=json)
    if made.damaged:
        typer.echo(f"damaged before they were copied: {', '.join(made.damaged)}", err=True)
        raise typer.Exit(1)


def _release() -> str:
    try:
        return metadata.version("outrider")
    except metadata.PackageNotFoundError:  # a checkout
        return ""


def show(manifest: "Manifest", folder: Path, *, json: bool) -> None:
    if json:
        as_json(summary(manifest, folder))
        return
    contents = manifest.contents
    typer.echo(
        f"{folder}: {contents.records} records in {contents.blocks} blocks up to {contents.journal_last_seq},"
        f" {len(manifest.files)} files, {manifest.total_bytes} bytes, all checked"
    )


def summary(manifest: "Manifest", folder: Path) -> dict[str, Any]:
    """Contents of a backup as JSON."""
    contents = manifest.contents
    return {
        "folder": str(folder.absolute()),
        "release": manifest.release,
        "files": len(manifest.files),
        "bytes": manifest.total_bytes,
        "records": contents.records,
        "blocks": contents.blocks,
        "journal_last_seq": contents.journal_last_seq,
        "cursors": dict(contents.cursors),
        "tables": dict(contents.tables),
        "damaged": list(manifest.damaged),
    }


class ProgressLine:
    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Print the progress on stderr, at most once every ``EVERY_S`` seconds."""
        if (now := time.monotonic()) - self._printed_at >= EVERY_S:
            self._printed_at = now
            typer.echo(f"{what}: {100 * done // max(1, total)} %", err=True)
