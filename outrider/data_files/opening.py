"""Endings of files, their bytes, and the names of their columns."""

import gzip
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from outrider.errors import ConfigError

from .left_out import LeftOut

TABLES = (".parquet", ".arrow", ".feather", ".ipc", ".npz")
CSV = (".csv", ".tsv")
JSON = (".jsonl", ".ndjson", ".json")
ENDINGS = (*TABLES, *CSV, *JSON, *(f"{ending}.gz" for ending in (*CSV, *JSON)))
_INDEX = re.compile(r"Unnamed: 0(\.\d+)?|__index_level_\d+__")


def ending_of(path: Path) -> str | None:
    """Known ending of a file, in lower case."""
    name = path.name.lower()
    return next((ending for ending in sorted(ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)


def known_ending(path: Path) -> str:
    """Ending of a file; ConfigError lists the known endings."""
    ending = ending_of(path)
    if ending is None:
        raise ConfigError(f"{path}: a file in {', '.join(ENDINGS)} expected, by its ending")
    return ending


def opened(path: Path) -> Any:
    """Open bytes of a file, unpacked."""
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")


def kept_columns(names: Sequence[str], left: LeftOut, *, named: Collection[str] = ()) -> list[int]:
    """Places of the columns that are read.

    An index that pandas wrote is left out.

    Raises
    ------
    ConfigError
        If two columns have one name, or one besides the first has none.
    """
    places: dict[str, list[int]] = {}
    for at, name in enumerate(names, 1):
        places.setdefault(name.strip(), []).append(at)
    for name, standing in places.items():
        where = " and ".join(map(str, standing))
        if name and len(standing) > 1:
            raise ConfigError(f"column {name!r} stands twice, as columns {where}: rename or delete one")
        if not name and standing != [1]:
            which = f"columns {where} have" if len(standing) > 1 else f"column {where} has"
            raise ConfigError(f"{which} no name: name each in the header, or delete it")
    kept = []
    for at, name in enumerate(names):
        if not name.strip():
            left.note("the first column is left out: it has no name, as the index that pandas writes")
        elif _INDEX.fullmatch(name) and name not in named:
            left.column(name, "the index that pandas writes")
        else:
            kept.append(at)
    if not kept:
        raise ConfigError(f"no column with a name; there are {len(names)} columns")
    return kept
