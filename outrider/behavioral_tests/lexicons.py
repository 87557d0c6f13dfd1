"""Word lists for templates.

Names, places, professions, religions, adjectives, terms for fairness tests. Sources and licences are in
``lexicon_data/manifest.json`` and ``NOTICE.md``. Custom lists are Python sequences passed to
:func:`template`; :func:`load_csv` and :func:`load_columns` read them from files.
"""

import csv
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

_FOLDER = files(__package__) / "lexicon_data"
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class About:
    """Origin of a lexicon."""

    name: str
    file: str
    columns: tuple[str, ...]
    """Columns that :func:`lexicon` and :func:`records` accept as filters."""
    source: str
    licence: str
    origin: str
    """Version of the source."""
    sha256: str
    """SHA-256 digest of the file."""


@cache
def names() -> tuple[str, ...]:
    """Names of the available lexicons, sorted.

    Examples
    --------
    >>> "first_name" in names() and "adjective_positive" in names()
    True
    """
    return tuple(sorted(_manifest()["lexicons"]))


def lexicon(name: str, **where: str | Collection[str]) -> tuple[str, ...]:
    """Distinct words of a lexicon, in file order.

    Parameters
    ----------
    **where
        Filters: one or several values of a column (:func:`about` lists the columns). Without filters, names
        and cities are a short international list.

    Raises
    ------
    KeyError
        If there is no such lexicon or column.
    ValueError
        If a column has no such value.

    Examples
    --------
    >>> "nurse" in lexicon("profession")
    True
    >>> lexicon("first_name", country="Japan", gender="female")[:3]
    ('Satomi', 'Yui', 'Akemi')
    >>> lexicon("nationality", continent="Oceania")[:2]
    ('Australian', 'Papua New Guinean')
    """
    view = _view(name)
    rows = _matching(name, where)
    if not where and "short" in view:
        rows = _short(rows, **view["short"])
    return tuple(dict.fromkeys(row[view["column"]] for row in rows))


def records(name: str, **where: str | Collection[str]) -> tuple[Row, ...]:
    """Rows of a lexicon, for slots such as ``{p.object}``.

    Examples
    --------
    >>> [row["object"] for row in records("pronoun")]
    ['him', 'her', 'them']
    """
    return tuple(_matching(name, where))


def about(name: str) -> About:
    """Source, licence and digest of a lexicon."""
    file = _view(name)["file"]
    entry = _manifest()["files"][file]
    columns = tuple(entry["columns"])
    return About(name, file, columns, entry["source"], entry["licence"], entry["origin"], entry["sha256"])


@cache
def version() -> str:
    """Twelve hex digits that change if any list changes."""
    return hashlib.sha256((_FOLDER / "manifest.json").read_bytes()).hexdigest()[:12]


def load_csv(path: Path | str, column: str) -> tuple[str, ...]:
    """Distinct values of a column of a CSV file with header.

    Raises
    ------
    KeyError
        If the file has no such column.
    """
    columns = load_columns(path)
    if column not in columns:
        raise KeyError(f"{path} has no column {column!r}; there are {', '.join(columns)}")
    values: tuple[str, ...] = columns[column]
    return values


def load_columns(path: Path | str) -> dict[str, Any]:
    """Distinct values of each column, for ``template("…", **load_columns("words.csv"))``."""
    rows = load_records(path)
    columns = rows[0] if rows else {}
    return {name: tuple(dict.fromkeys(row[name] for row in rows if row[name])) for name in columns}


def load_records(path: Path | str) -> tuple[Row, ...]:
    """Rows of a CSV file with header, for slots such as ``{team.town}``."""
    # spreadsheets write a byte order mark in front
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        return tuple(csv.DictReader(file, restval=""))


@cache
def _manifest() -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((_FOLDER / "manifest.json").read_text(encoding="utf-8"))
    return manifest


@cache
def _rows(file: str) -> tuple[Row, ...]:
    return tuple(csv.DictReader((_FOLDER / file).read_text(encoding="utf-8").splitlines()))


def _view(name: str) -> dict[str, Any]:
    views = _manifest()["lexicons"]
    if name not in views:
        raise KeyError(f"no lexicon {name!r}; there are {', '.join(names())}")
    view: dict[str, Any] = views[name]
    return view


def _matching(name: str, where: Mapping[str, str | Collection[str]]) -> list[Row]:
    view = _view(name)
    rows = list(_rows(view["file"]))
    for column, wanted in {**view.get("where", {}), **where}.items():
        if column not in rows[0]:
            raise KeyError(f"lexicon {name!r} has no column {column!r}; there are {', '.join(rows[0])}")
        allowed = {wanted} if isinstance(wanted, str) else set(wanted)
        _check_known(name, column, allowed)
        rows = [row for row in rows if row[column] in allowed]
    return rows


def _check_known(name: str, column: str, allowed: set[str]) -> None:
    known = dict.fromkeys(row[column] for row in _rows(_view(name)["file"]))
    for value in sorted(allowed - set(known)):
        close = get_close_matches(value, known, n=3) or list(known)[:10]
        raise ValueError(f"lexicon {name!r} has no {column} {value!r}; there are {', '.join(close)}, …")


def _short(rows: Sequence[Row], *, by: Sequence[str], each: int, groups: int) -> list[Row]:
    """First ``each`` rows of the first groups with equal columns ``by``."""
    counts: dict[tuple[str, ...], int] = {}
    kept: list[Row] = []
    for row in rows:
        group = tuple(row[column] for column in by)
        if group not in counts and len(counts) == groups:
            continue
        counts[group] = counts.get(group, 0) + 1
        if counts[group] <= each:
            kept.append(row)
    return kept
