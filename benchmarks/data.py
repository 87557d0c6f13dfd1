"""Where the shared data sets lie: ``$OUTRIDER_DATA``, else ``shared/data`` beside or above the checkout."""

import os
from pathlib import Path


def data_folder(name: str) -> Path:
    """Folder of one shared data set; its README says where it comes from.

    Raises
    ------
    FileNotFoundError
        If it is nowhere; the message says where was looked.
    """
    given = os.environ.get("OUTRIDER_DATA")
    homes = (
        [Path(given)] if given else [above / "shared" / "data" for above in Path(__file__).resolve().parents]
    )
    for home in homes:
        if (home / name).is_dir():
            return home / name
    raise FileNotFoundError(
        f"data set {name!r} is in none of {', '.join(map(str, homes))}; "
        "set OUTRIDER_DATA to the folder of the data sets"
    )
