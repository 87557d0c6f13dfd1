"""Word lists for templates: written for this project, one word a line, under the project's licence.

One's own lists are plain Python sequences; :func:`load_csv` reads one from a file.
"""

import csv
from functools import cache
from importlib.resources import files
from pathlib import Path

_FOLDER = files(__package__) / "lexicon_data"


@cache
def names() -> tuple[str, ...]:
    """Names of the lexicons there are, sorted."""
    return tuple(
        sorted(entry.name.removesuffix(".txt") for entry in _FOLDER.iterdir() if entry.name.endswith(".txt"))
    )


@cache
def lexicon(name: str) -> tuple[str, ...]:
    """Words of a lexicon, in file order.

    Raises
    ------
    KeyError
        If there is none of that name.

    Examples
    --------
    >>> "nurse" in lexicon("profession")
    True
    """
    if name not in names():
        raise KeyError(f"no lexicon {name!r}; there are {', '.join(names())}")
    lines = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def load_csv(path: Path | str, column: str) -> tuple[str, ...]:
    """Distinct values of one column of a CSV file with a header, in file order.

    Raises
    ------
    KeyError
        If the file has no such column.
    """
    with Path(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if column not in (reader.fieldnames or ()):
            raise KeyError(f"{path} has no column {column!r}; there are {', '.join(reader.fieldnames or ())}")
        return tuple(dict.fromkeys(row[column] for row in reader if row[column]))
