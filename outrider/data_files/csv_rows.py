"""Rows of CSV files: header, delimiter, lines, and the types of columns."""

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from outrider.errors import ConfigError

from .left_out import LeftOut
from .opening import kept_columns, opened
from .table_options import TableOptions

MOST = 0.9
"""Share of the first values of a column that say what its type is."""
DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'"}
_SEP = re.compile(r'"?sep=(.)"?\r?\n?', re.IGNORECASE)
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity|nan)$"
_COMMA = r"^[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+$"
_WHOLE = r"^[+-]?\d+$"
_TIMES = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.date32())
Lines = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Header:
    names: list[str]
    delimiter: str
    lines: int
    """Physical lines up to its end."""
    has_rows: bool


def csv_parts(
    path: Path, how: TableOptions, left: LeftOut, *, rows: int
) -> Iterator[tuple[pa.Table, Lines, float]]:
    """Parts of a file with their lines.

    A row that does not fit is left out and named. A file without a row has one part without one.
    """
    header = _header(path, how)
    kept = [header.names[at] for at in kept_columns(header.names, left, named=how.named)]
    lines = _Lines(header.lines)
    if not header.has_rows:
        yield pa.table({name: pa.array([], pa.string()) for name in kept}), np.zeros(0, np.int64), 1.0
        return
    total = max(1, path.stat().st_size)
    # Arrow reads ahead: in a thread that must not need Python, which may be ending.
    with pa.OSFile(str(path)) as file, _reader(_unpacked(path, file), header, lines.malformed) as reader:
        typed = None
        for batch in reader:
            if typed is None:
                typed = _Types(batch.select(kept), how, left, header.delimiter)
            places = lines.of(batch, left)
            full, places = _not_empty(batch, places, left)
            part, places = typed.table(full.select(kept), places, left)
            share = min(1.0, file.tell() / total)
            for start in range(0, max(1, part.num_rows), rows):
                yield part.slice(start, rows), places[start : start + rows], share
        lines.rest(left)


def _header(path: Path, how: TableOptions) -> _Header:
    """Names and delimiter; refused where the file seems to have another one."""
    with opened(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        first, skipped = file.readline(), 0
        told = _SEP.fullmatch(first)
        if told is not None:
            first, skipped = file.readline(), 1
        while first and not first.strip("\r\n"):
            first, skipped = file.readline(), skipped + 1
        if not first:
            raise ConfigError("empty; a header and rows expected")
        usual = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
        delimiter = how.delimiter or (told[1] if told else usual)
        try:
            reader = csv.reader(itertools.chain([first], file), delimiter=delimiter)
            names = next(reader)
        except (csv.Error, TypeError) as error:
            raise ConfigError(f"line {skipped + 1}: a header expected: {error}") from None
        if how.delimiter is None and told is None:
            _check_delimiter(first, delimiter, len(names))
        rest = itertools.dropwhile(str.isspace, file)
        return _Header(names, delimiter, skipped + reader.line_num, any(True for _ in rest))


def _check_delimiter(line: str, delimiter: str, columns: int) -> None:
    for other, shown in DELIMITERS.items():
        if other != delimiter and len(next(csv.reader([line], delimiter=other))) > columns:
            header = line.strip("\r\n")
            raise ConfigError(
                f"{columns} column{'s' * (columns > 1)} in the header {header[:80]!r}: separated by {shown}? "
                f"Name it with --delimiter {shown}, or write the file with commas"
            )


def _unpacked(path: Path, file: Any) -> Any:
    return pa.CompressedInputStream(file, "gzip") if path.suffix.lower() == ".gz" else file


def _reader(source: Any, header: _Header, malformed: Any) -> Any:
    return pa.csv.open_csv(
        source,
        read_options=pa.csv.ReadOptions(
            use_threads=False, column_names=_distinct(header.names), skip_rows=header.lines
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(_distinct(header.names), pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
        parse_options=pa.csv.ParseOptions(
            delimiter=header.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=malformed,
        ),
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Names as they are; the nameless first one may be that of no other column."""
    return [name if name.strip() else "\0" for name in names]


class _Lines:
    """Physical lines of rows, which may span several and have malformed ones between them."""

    def __init__(self, header: int) -> None:
        self._header = header
        self._row = 0
        """Rows so far, malformed ones too."""
        self._line = header + 1
        """Line of the next row."""
        self._malformed: list[tuple[int, str, int]] = []
        """Number among the rows from 0, reason, and lines in excess of one; in their order."""

    def malformed(self, row: Any) -> str:
        why = f"{row.expected_columns} values expected, got {row.actual_columns}"
        self._malformed.append((row.number - self._header - 1, why, row.text.count("\n")))
        return "skip"

    def of(self, batch: pa.RecordBatch, left: LeftOut) -> Lines:
        """Lines of a batch's rows; the malformed rows among them are named."""
        breaks = _breaks(batch)
        places = np.zeros(batch.num_rows, np.int64)
        start = 0
        while start < batch.num_rows:
            ahead = self._malformed[0][0] - self._row if self._malformed else batch.num_rows - start
            stop = min(batch.num_rows, start + ahead)
            before = np.concatenate([[0], np.cumsum(1 + breaks[start:stop])])
            places[start:stop] = self._line + before[:-1]
            self._line += int(before[-1])
            self._row += stop - start
            start = stop
            if self._malformed and self._malformed[0][0] <= self._row:
                self._name(left)
        return places

    def rest(self, left: LeftOut) -> None:
        """Malformed rows at the end of the file."""
        while self._malformed:
            self._name(left)

    def _name(self, left: LeftOut) -> None:
        _, why, excess = self._malformed.pop(0)
        left.row(self._line, why)
        self._line += 1 + excess
        self._row += 1


def _breaks(batch: pa.RecordBatch) -> Lines:
    """Line breaks inside the values of each row."""
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if (values := column.buffers()[2]) is None or re.search(b"\n", values) is None:
            continue
        counts = pc.fill_null(pc.count_substring(column, "\n"), 0)
        total += counts.to_numpy(zero_copy_only=False)
    return total


def _not_empty(batch: pa.RecordBatch, places: Lines, left: LeftOut) -> tuple[pa.RecordBatch, Lines]:
    known = np.zeros(batch.num_rows, np.bool_)
    for column in batch.columns:
        known |= column.is_valid().to_numpy(zero_copy_only=False)
    if known.all():
        return batch, places
    left.note(f"empty rows are left out, the first in line {places[~known][0]}")
    return batch.filter(pa.array(known)), places[known]


class _Types:
    """Types of columns by the first rows of a file, of which a few may be odd."""

    def __init__(self, first: pa.RecordBatch, how: TableOptions, left: LeftOut, delimiter: str) -> None:
        self._decimal = how.decimal
        self._delimiter = delimiter
        self._left = left
        self._kinds = {
            name: pa.string() if name in how.text else self._kind(name, first.column(name), how)
            for name in first.schema.names
        }

    def table(self, part: pa.RecordBatch, places: Lines, left: LeftOut) -> tuple[pa.Table, Lines]:
        """Texts in the types of their columns; rows with a value that has none are left out."""
        columns: dict[str, pa.Array] = {}
        good = np.ones(part.num_rows, np.bool_)
        for name, kind in self._kinds.items():
            texts = part.column(name)
            columns[name], odd = self._cast(texts, kind)
            for row in np.flatnonzero(odd & good):
                left.row(int(places[row]), f"{name}: {kind} expected, got {texts[row].as_py()!r:.80}")
            good &= ~odd
        table = pa.table(columns)
        return (table, places) if good.all() else (table.filter(pa.array(good)), places[good])

    def _kind(self, name: str, column: pa.Array, how: TableOptions) -> pa.DataType:
        texts = self._plain(column.filter(_is_given(column))).drop_null()
        count = len(texts)
        if not count:
            return pa.string()
        if _share(pc.is_in(pc.utf8_lower(texts), pa.array(["true", "false"]))) >= MOST:
            return pa.bool_()
        is_number = pc.match_substring_regex(texts, _NUMBER)
        if _share(is_number) < MOST:
            self._check_comma(name, texts)
            return _time_kind(texts) if how.times else pa.string()
        whole = texts.filter(pc.match_substring_regex(texts, _WHOLE))
        if len(whole) < pc.sum(is_number).as_py():
            return pa.float64()
        try:
            _signed(whole).cast(pa.int64())
        except pa.ArrowException:
            return pa.string()  # ids beyond 2^63
        return pa.int64()

    def _check_comma(self, name: str, texts: pa.Array) -> None:
        number = pc.or_(pc.match_substring_regex(texts, _COMMA), pc.match_substring_regex(texts, _WHOLE))
        if (
            self._decimal != "."
            or _share(number) < MOST
            or not pc.any(pc.match_substring(texts, ",")).as_py()
        ):
            return
        seems = f"column {name!r}: numbers with a decimal comma, such as {texts[0].as_py()!r}?"
        if self._delimiter == ",":
            self._left.note(f"{seems} It is read as text; --decimal ',' reads numbers")
            return
        raise ConfigError(f"{seems} Read them with --decimal ',', or as texts with --text {name}")

    def _plain(self, texts: pa.Array) -> pa.Array:
        trimmed = pc.utf8_trim_whitespace(texts)
        if self._decimal == ".":
            return trimmed
        is_number = pc.match_substring_regex(trimmed, _COMMA)
        points = pc.replace_substring(pc.replace_substring(trimmed, ".", ""), self._decimal, ".")
        return pc.if_else(is_number, points, trimmed)

    def _cast(self, texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Column in its type, and the rows that have no value of it; integers may become floats."""
        if pa.types.is_string(kind):
            return texts, np.zeros(len(texts), np.bool_)
        given = pc.if_else(_is_given(texts), self._plain(texts), None)
        if pa.types.is_boolean(kind):
            lower = pc.utf8_lower(given)
            known = pc.is_in(lower, pa.array(["true", "false", "0", "1"]))
            value = pc.if_else(given.is_valid(), pc.is_in(lower, pa.array(["true", "1"])), None)
            return value, _false(pc.or_(known, pc.invert(given.is_valid())))
        if pa.types.is_temporal(kind):
            return _times(given, kind)
        for target in (kind, pa.float64()):
            try:
                return given.cast(target), np.zeros(len(texts), np.bool_)
            except pa.ArrowException:
                continue
        is_number = pc.fill_null(pc.match_substring_regex(given, _NUMBER), True)
        return _signed(pc.if_else(is_number, given, None)).cast(pa.float64()), _false(is_number)


def _is_given(texts: pa.Array) -> pa.Array:
    return pc.invert(pc.is_in(texts, pa.array(_MISSING)))


def _false(mask: pa.Array) -> NDArray[np.bool_]:
    return ~np.asarray(mask.to_numpy(zero_copy_only=False), np.bool_)


def _share(mask: pa.Array) -> float:
    return float(pc.mean(mask).as_py() or 0.0)


def _signed(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, r"^\+", "")


def _time_kind(texts: pa.Array) -> pa.DataType:
    for kind in _TIMES:
        try:
            texts.cast(kind)
        except pa.ArrowException:
            continue
        return kind
    return pa.string()


def _times(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_]]:
    odd = np.zeros(len(texts), np.bool_)
    try:
        return texts.cast(kind), odd
    except pa.ArrowException:
        pass
    for row in range(len(texts)):
        try:
            texts.slice(row, 1).cast(kind)
        except pa.ArrowException:
            odd[row] = True
    return pc.if_else(pa.array(~odd), texts, None).cast(kind), odd
