"""``outrider restore``: restore a data folder from a backup."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from .backup import ProgressLine, show
from .output import Config, Json


def restore(
    source: Annotated[Path, typer.Argument(help="Folder that `outrider backup` made.")],
    erasures: Annotated[
        Path | None,
        typer.Option(help="Data folder or later backup that knows what was erased since."),
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Restore the data folder of the configuration from a backup.

    The folder must be empty or absent. Records that were erased after the backup are erased from it again.
    """
    from outrider.dataops.access.private_files import keep_files_private
    from outrider.dataops.backup.restore import restore as restore_folder
    from outrider.dataops.erasure.erasing import complete
    from outrider.dataops.erasure.pending import is_pending
    from outrider.dataops.erasure.replayed import erasure_list
    from outrider.monitor.migrate import migrate
    from outrider.monitor.settings.config import find_config, load_settings
    from outrider.monitor.settings.erasure_place import place_of

    keep_files_private()
    settings = load_settings(find_config(config))
    erased = None if erasures is None else json_format.dumps(erasure_list(erasures))
    made = restore_folder(source, settings.data_folder, progress=ProgressLine(), erasures=erased)
    if is_pending(settings.data_folder):
        migrate(settings)
        complete(place_of(settings))
    show(made, settings.data_folder, json=json)
