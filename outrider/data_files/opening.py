"""Options, endings, bytes and column names of files."""

import gzip
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from outrider.errors import ConfigError

from .left_out import LeftOut

TABLES = (".parquet", ".arrow", ".feather", ".ipc", ".npz")
CSV = (".csv", ".tsv")
JSON = (".jsonl", ".ndjson", ".json")
ENDINGS = (*TABLES, *CSV, *JSON, *(f"{ending}.gz" for ending in (*CSV, *JSON)))
Parts = Iterator[tuple[pa.Table, Sequence[int], float]]
_INDEX = re.compile(r"Unnamed: 0(\.\d+)?|__index_level_\d+__")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of reading a table.

    Attributes
    ----------
    delimiter
        Of CSV files; None: the one that a line ``sep=;`` names, a tab in ``.tsv``, else a comma.
    decimal
        Decimal mark of numbers in CSV files.
    text
        Columns of CSV files that are texts, whatever they look like.
    named
        Columns that the caller asks for: never taken for an index.
    times
        Whether texts that are all times become times; JSON has none, and so neither have records.
    """

    delimiter: str | None = None
    decimal: str = "."
    text: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    times: bool = False


def ending_of(path: Path) -> str | None:
    """Known ending of a file, in lower case."""
    name = path.name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), None)


def known_ending(path: Path) -> str:
    """Ending of a file; ConfigError lists the known endings."""
    ending = ending_of(path)
    if ending is None:
        raise ConfigError(f"{path}: a file in {', '.join(ENDINGS)} expected, by its ending")
    return ending


def is_json(path: Path) -> bool:
    """Tell files of JSON from tables, by their known ending."""
    return known_ending(path).removesuffix(".gz") in JSON


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Bytes of a text file, unpacked.

    Raises
    ------
    ConfigError
        If its beginning is no UTF-8.
    """
    with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
        begin = file.peek(4)[:4]
        if begin[:2] == b"\x1f\x8b":
            raise ConfigError("text expected, got gzip; name the file .gz")
        if begin[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in begin:
            raise ConfigError(not_utf8("UTF-16"))
        yield file


def not_utf8(found: str = "another encoding") -> str:
    """Sentence on a text of another encoding."""
    return f"UTF-8 expected, got {found}; write the file as UTF-8 (spreadsheets say: CSV UTF-8)"


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
