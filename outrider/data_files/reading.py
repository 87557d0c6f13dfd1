"""Tables of files of every known ending, part by part or whole."""

import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from outrider.assertions.batch_schema import PARTS
from outrider.errors import ConfigError, NothingToRead

from .arrow_files import table_parts
from .csv_rows import csv_parts
from .json_values import json_table
from .left_out import LeftOut
from .opening import CSV, TABLES, known_ending
from .table_options import TableOptions

ROWS = 65_536


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows of a file in plain types.

    Attributes
    ----------
    places
        Line of each row in a text file, row in others, from 1.
    share
        How much of the file is read, in 0 to 1.
    """

    table: pa.Table
    places: Sequence[int]
    share: float


def read_parts(path: Path, how: TableOptions, left: LeftOut, *, rows: int = ROWS) -> Iterator[TablePart]:
    """Parts of a table file, each of at most ``rows`` rows.

    A file without a row has one part without one.

    Raises
    ------
    ConfigError
        If the file as a whole cannot be read.
    """
    try:
        yield from _parts(path, known_ending(path), how, left, rows)
    except ConfigError as error:
        raise ConfigError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {_not_utf8(error.object[:2])}") from None
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError, pa.ArrowException) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        said = _not_utf8(b"") if "invalid UTF8" in message else f"cannot be read: {message}"
        raise ConfigError(f"{path}: {said}") from None


def _not_utf8(begin: bytes) -> str:
    what = "UTF-16" if begin in (b"\xff\xfe", b"\xfe\xff") else "another encoding"
    return f"UTF-8 expected, got {what}; write the file as UTF-8 (spreadsheets say: CSV UTF-8)"


def _parts(path: Path, ending: str, how: TableOptions, left: LeftOut, rows: int) -> Iterator[TablePart]:
    if ending in TABLES:
        done = 0
        for table, share in table_parts(path, ending, how, left, rows=rows):
            yield TablePart(table, range(done + 1, done + len(table) + 1), share)
            done += len(table)
    elif ending.removesuffix(".gz") in CSV:
        for table, places, share in csv_parts(path, how, left, rows=rows):
            yield TablePart(table, places.tolist(), share)
    else:
        yield TablePart(*json_table(path, left), 1.0)


def read_table(path: Path, how: TableOptions, left: LeftOut) -> pa.Table:
    """Whole table of a file, with columns of parts under full names.

    Raises
    ------
    ConfigError
        If the file cannot be read as what its ending says.
    NothingToRead
        If it has no row.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    parts = [part.table for part in read_parts(path, how, left)]
    full = [part for part in parts if len(part)]
    table = pa.concat_tables(full or parts[:1] or [pa.table({})], promote_options="permissive")
    if not len(table):
        raise NothingToRead(f"{path}: no row")
    return _of_parts(table)


def _of_parts(table: pa.Table) -> pa.Table:
    """Structs named ``inputs``, ``outputs``, ``attrs`` and ``label`` as columns of their fields."""
    columns: dict[str, pa.ChunkedArray] = {}
    for name in table.column_names:
        column = table.column(name)
        if name in PARTS and pa.types.is_struct(column.type):
            fields = zip(column.type, column.flatten(), strict=True)
            columns |= {f"{name}.{field.name}": values for field, values in fields}
        else:
            columns[name] = column
    return pa.table(columns)


def one_table(path: Path, how: TableOptions = TableOptions()) -> pa.Table:  # noqa: B008 - frozen
    """Whole table of a file.

    No row may be left out; a column that is gives a warning.

    Raises
    ------
    ConfigError
        Naming the first line that cannot be used.
    """

    def refuse(line: int, why: str) -> None:
        raise ConfigError(f"line {line}: {why}")

    left = LeftOut(refuse)
    found = read_table(path, how, left)
    for sentence in left.sentences(path):
        warnings.warn(sentence, stacklevel=2)
    return found
