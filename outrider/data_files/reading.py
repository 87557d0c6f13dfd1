"""Tables of files of every known ending, part by part or whole."""

import warnings
import zipfile
import zlib
from pathlib import Path

import pyarrow as pa

from outrider.assertions.batch.schema import PARTS
from outrider.errors import ConfigError, NothingToRead

from .arrow_files import table_parts
from .csv_rows import csv_parts
from .json_values import json_table
from .left_out import LeftOut
from .opening import CSV, TABLES, Parts, TableOptions, known_ending, not_utf8

ROWS = 65_536


def read_parts(path: Path, how: TableOptions, left: LeftOut, *, rows: int = ROWS) -> Parts:
    """Parts of a table file, each of at most ``rows`` rows.

    A part is a table in plain types, the line of each row in a text file (the row in others, from 1), and how
    much of the file is read, in 0 to 1.

    Raises
    ------
    ConfigError
        If the file as a whole cannot be read.
    """
    try:
        yield from _parts(path, known_ending(path), how, left, rows)
    except ConfigError as error:
        raise ConfigError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: {not_utf8()}") from None
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError, pa.ArrowException) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        said = not_utf8() if "invalid UTF8" in message else f"cannot be read: {message}"
        raise ConfigError(f"{path}: {said}") from None


def _parts(path: Path, ending: str, how: TableOptions, left: LeftOut, rows: int) -> Parts:
    if ending in TABLES:
        yield from table_parts(path, ending, how, left, rows=rows)
    elif ending.removesuffix(".gz") in CSV:
        yield from csv_parts(path, how, left, rows=rows)
    else:
        yield *json_table(path, left), 1.0


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
    parts = [table for table, _, _ in read_parts(path, how, left) if len(table)]
    if not parts:
        raise NothingToRead(f"{path}: {left.why_no_row()}")
    table = pa.concat_tables(parts, promote_options="permissive")
    columns: dict[str, pa.ChunkedArray] = {}
    for name in table.column_names:
        column = table.column(name)
        if name in PARTS and pa.types.is_struct(column.type):
            fields = zip(column.type, column.flatten(), strict=True)
            columns |= {f"{name}.{field.name}": values for field, values in fields}
        else:
            columns[name] = column
    return pa.table(columns)


def one_table(path: Path) -> pa.Table:
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
    found = read_table(path, TableOptions(), left)
    for sentence in left.sentences(path):
        warnings.warn(sentence, stacklevel=2)
    return found
