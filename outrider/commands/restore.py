"""``outrider restore``: makes a data folder from a backup."""

from pathlib import Path
from typing import Annotated

import typer

from .backup import ProgressLine, show
from .output import Config, Json


def restore(
    source: Annotated[Path, typer.Argument(help="Folder that `outrider backup` made.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """Restore the data folder of the configuration from a backup.

    The folder must be empty or absent.
    """
    from outrider.dataops.access.private_files import keep_files_private
    from outrider.dataops.backup.restore import restore as restore_folder
    from outrider.monitor.settings.config import find_config, load_settings

    keep_files_private()
    folder = load_settings(find_config(config)).data_folder
    show(restore_folder(source, folder, progress=ProgressLine()), folder, json=json)
