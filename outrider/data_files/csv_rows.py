"""Rows of CSV files: header, delimiter, lines, and the types of columns."""

import csv
import io
import re
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from outrider.errors import ConfigError

from .left_out import LeftOut
from .opening import Parts, TableOptions, kept_columns, not_utf8, opened

MOST = 0.9
"""Share of the first values of a column that say what its type is."""
DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'"}
_SEP = re.compile(r'"?sep=(.)"?\r?\n?', re.IGNORECASE)
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity|nan)$"
_COMMA = r"^[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+$"
_WHOLE = r"^[+-]?\d+$"
_TIMES = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))
Lines = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Header:
    names: list[str]
    delimiter: str
    lines: int
    """Physical lines up to its end."""
    has_rows: bool


def csv_parts(path: Path, how: TableOptions, left: LeftOut, *, rows: int) -> Parts:
    """Parts of a file with their lines.

    A row that does not fit is left out and named.
    """
    header = _header(path, how)
    kept = [header.names[at] for at in kept_columns(header.names, left, named=how.named)]
    if not header.has_rows:
        return
    lines = _Lines(header.lines)
    try:
        yield from _parts_of(path, how, left, header, kept, lines, rows)
    except pa.ArrowInvalid as error:
        if any(word in str(error) for word in ("straddling", "out of sync")):
            raise ConfigError(f"a row behind line {lines.read} is over 1 MiB: is a quote open?") from None
        raise


def _parts_of(
    path: Path, how: TableOptions, left: LeftOut, header: _Header, kept: list[str], lines: "_Lines", rows: int
) -> Parts:
    kinds: dict[str, pa.DataType] = {}
    total = path.stat().st_size
    # Arrow reads ahead: in a thread that must not need Python, which may be ending.
    with pa.OSFile(str(path)) as file, _reader(path, file, header, lines.malformed) as reader:
        for batch, following in pairwise(chain(reader, [None])):
            batch, places = _without_headers(batch, lines.of(batch, left), header.names, left)
            if following is None and len(batch) and _is_open(path, batch.column(-1)[-1].as_py()):
                left.row(int(places[-1]), "a quote that opens there is not closed up to the end of the file")
                batch, places = batch.slice(0, len(batch) - 1), places[:-1]
            kinds = kinds or {
                name: _kind(name, batch.column(name), how, left, header.delimiter) for name in kept
            }
            table, places = _typed(batch, kinds, how.decimal, places, left)
            share = min(1.0, file.tell() / total)
            for start in range(0, len(table), rows):
                yield table.slice(start, rows), places[start : start + rows].tolist(), share
        lines.of(pa.record_batch({}), left)


def _without_headers(
    batch: pa.RecordBatch, places: Lines, names: list[str], left: LeftOut
) -> tuple[pa.RecordBatch, Lines]:
    """Rows but for those that are the header again, as files put together have them."""
    again = np.full(len(batch), len(names) > 1)
    for name, column in zip(names, batch.columns, strict=True):
        if not again.any():
            return batch, places
        again &= _mask(pc.equal(pc.fill_null(column, ""), name))
    for row in np.flatnonzero(again):
        left.row(int(places[row]), "the header again")
    return batch.filter(pa.array(~again)), places[~again]


def _is_open(path: Path, last: str | None) -> bool:
    """Test for a last value that goes to the end of the file, its quote never closed."""
    if last is None or "\n" not in last:
        return False
    tail = b""
    with opened(path) as file:
        while piece := file.read(1 << 20):
            tail = (tail + piece)[-64:]
    return not tail.rstrip(b"\r\n").endswith(b'"')


def _header(path: Path, how: TableOptions) -> _Header:
    """Names and delimiter; refused where the file seems to have another one."""
    with opened(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        declared = None
        for skipped, first in enumerate(file):
            found = None if skipped else _SEP.fullmatch(first)
            declared = declared or found
            if first.strip("\r\n") and not found:
                break
        else:
            raise ConfigError("empty; a header and rows expected")
        usual = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
        delimiter = how.delimiter or (declared[1] if declared else usual)
        try:
            reader = csv.reader(chain([first], file), delimiter=delimiter, strict=True)
            names = next(reader)
        except (csv.Error, TypeError) as error:
            raise ConfigError(f"line {skipped + 1}: a header expected: {error}") from None
        if "\0" in "".join(names):
            raise ConfigError(f"line {skipped + 1}: {not_utf8('NUL bytes')}")
        if how.delimiter is None and declared is None:
            _check_delimiter(first, delimiter, len(names))
        return _Header(names, delimiter, skipped + reader.line_num, not all(map(str.isspace, file)))


def _check_delimiter(line: str, delimiter: str, columns: int) -> None:
    for other, shown in DELIMITERS.items():
        if other != delimiter and len(next(csv.reader([line], delimiter=other))) > columns:
            header = line.strip("\r\n")
            raise ConfigError(
                f"{columns} column{'s' * (columns > 1)} in the header {header[:80]!r}: separated by {shown}? "
                f"Name it with --delimiter {shown}, or write the file with commas"
            )


def _reader(path: Path, file: Any, header: _Header, malformed: Any) -> Any:
    return pa.csv.open_csv(
        pa.CompressedInputStream(file, "gzip") if path.suffix.lower() == ".gz" else file,
        read_options=pa.csv.ReadOptions(use_threads=False, column_names=header.names, skip_rows=header.lines),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(header.names, pa.string()),
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


class _Lines:
    """Physical lines of rows, which may span several and have malformed ones between them."""

    def __init__(self, header: int) -> None:
        self._header = header
        self._row = 0
        """Rows so far, malformed ones too."""
        self._line = header + 1
        """Line of the next row."""
        self._malformed: list[tuple[int, int, str]] = []
        """Number among the rows from 0, line breaks inside, and reason; in their order."""

    @property
    def read(self) -> int:
        """Lines so far."""
        return self._line - 1

    def malformed(self, row: Any) -> str:
        why = f"{row.expected_columns} values expected, got {row.actual_columns}"
        if breaks := row.text.count("\n"):
            why += f"; it goes over {breaks + 1} lines: is a quote open?"
        self._malformed.append((row.number - self._header - 1, breaks, why))
        return "skip"

    def of(self, batch: pa.RecordBatch, left: LeftOut) -> Lines:
        """Lines of a batch's rows; the malformed rows among them and behind them are named."""
        breaks = np.zeros(batch.num_rows, np.int64)
        for column in batch.columns:
            if re.search(b"\n", column.buffers()[2] or b""):
                breaks += pc.fill_null(pc.count_substring(column, "\n"), 0).to_numpy()
        # Arrow reads ahead: only these have no more good rows in front of them than the batch has.
        skipped = [
            (number - self._row, inside, why)
            for at, (number, inside, why) in enumerate(self._malformed)
            if number - self._row - at <= batch.num_rows
        ]
        del self._malformed[: len(skipped)]
        numbers = np.array([number for number, _, _ in skipped], np.int64)
        breaks = np.insert(breaks, numbers - np.arange(len(skipped)), [inside for _, inside, _ in skipped])
        lines = self._line + np.concatenate([[0], np.cumsum(1 + breaks)])
        for number, _, why in skipped:
            left.row(int(lines[number]), why)
        self._row += len(breaks)
        self._line = int(lines[-1])
        return np.delete(lines[:-1], numbers)


def _typed(
    batch: pa.RecordBatch, kinds: dict[str, pa.DataType], decimal: str, places: Lines, left: LeftOut
) -> tuple[pa.Table, Lines]:
    """Texts in the types of their columns; rows with a value that has none are left out."""
    good = np.zeros(batch.num_rows, np.bool_)
    for column in batch.columns:
        good |= _mask(column.is_valid())
    if not good.all():
        left.note(f"empty rows are left out, the first in line {places[~good][0]}")
    columns: dict[str, pa.Array] = {}
    for name, kind in kinds.items():
        texts = batch.column(name)
        columns[name] = texts
        if not pa.types.is_string(kind):
            given = _given(texts, decimal)
            columns[name] = _cast(given, kind)
            odd = _mask(given.is_valid()) & ~_mask(columns[name].is_valid())
            for row in np.flatnonzero(odd & good):
                left.row(int(places[row]), f"{name}: {kind} expected, got {texts[row].as_py()!r:.80}")
            good &= ~odd
    table = pa.table(columns)
    return (table, places) if good.all() else (table.filter(pa.array(good)), places[good])


def _kind(name: str, column: pa.Array, how: TableOptions, left: LeftOut, delimiter: str) -> pa.DataType:
    """Type of a column by the first rows of a file, of which a few may be odd."""
    texts = _given(column, how.decimal).drop_null()
    if name in how.text or not len(texts):
        return pa.string()
    if _share(pc.is_in(pc.utf8_lower(texts), pa.array(["true", "false"]))) >= MOST:
        return pa.bool_()
    is_number = pc.match_substring_regex(texts, _NUMBER)
    if _share(is_number) < MOST:
        if how.decimal == ".":
            _check_comma(name, texts, left, delimiter)
        return next((k for k in _TIMES if how.times and _cast_all(texts, k) is not None), pa.string())
    whole = texts.filter(pc.match_substring_regex(texts, _WHOLE))
    if len(codes := whole.filter(pc.match_substring_regex(whole, r"^0\d"))):
        left.note(f"column {name!r}: {codes[0].as_py()!r} is read as a number; --text {name} keeps its zeros")
    if len(whole) < pc.sum(is_number).as_py():
        return pa.float64()
    is_id = _cast_all(_unsigned(whole), pa.int64()) is None  # beyond 2^63
    return pa.string() if is_id else pa.int64()


def _check_comma(name: str, texts: pa.Array, left: LeftOut, delimiter: str) -> None:
    number = pc.or_(pc.match_substring_regex(texts, _COMMA), pc.match_substring_regex(texts, _WHOLE))
    if _share(number) < MOST or not pc.any(pc.match_substring(texts, ",")).as_py():
        return
    seems = f"column {name!r}: numbers with a decimal comma, such as {texts[0].as_py()!r}?"
    if delimiter != ",":
        raise ConfigError(f"{seems} Read them with --decimal ',', or as texts with --text {name}")
    left.note(f"{seems} It is read as text; --decimal ',' reads numbers")


def _given(texts: pa.Array, decimal: str) -> pa.Array:
    """Trimmed texts, missing ones null, numbers with a point."""
    trimmed = pc.utf8_trim_whitespace(pc.if_else(pc.is_in(texts, pa.array(_MISSING)), None, texts))
    if decimal == ".":
        return trimmed
    points = pc.replace_substring(pc.replace_substring(trimmed, ".", ""), decimal, ".")
    return pc.if_else(pc.match_substring_regex(trimmed, _COMMA), points, trimmed)


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Column in its type, null for what has no value of it; integers may become floats."""
    if pa.types.is_boolean(kind):
        lower = pc.utf8_lower(texts)
        is_true, is_false = (pc.is_in(lower, pa.array(w)) for w in (["true", "1"], ["false", "0"]))
        return pc.if_else(pc.or_(is_true, is_false), is_true, None)
    found = _cast_all(texts, kind)
    if found is not None:
        return _in_range(found, texts)
    if pa.types.is_temporal(kind):
        import pandas as pd

        times = pd.to_datetime(texts.to_pandas(), format="ISO8601", utc=True, errors="coerce")
        return pa.array(times).cast(_TIMES[1], safe=False).cast(kind)
    numbers = _unsigned(pc.if_else(pc.match_substring_regex(texts, _NUMBER), texts, None))
    return _in_range(numbers.cast(pa.float64()), texts)


def _in_range(numbers: pa.Array, texts: pa.Array) -> pa.Array:
    """Numbers; null for those of more than a double holds (``1e400``)."""
    if not pa.types.is_floating(numbers.type) or not pc.any(pc.is_inf(numbers)).as_py():
        return numbers
    is_beyond = pc.and_(pc.is_inf(numbers), pc.invert(pc.match_substring(texts, "inf", ignore_case=True)))
    return pc.if_else(is_beyond, None, numbers)


def _cast_all(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return texts.cast(kind)
    except pa.ArrowException:
        return None


def _unsigned(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, r"^\+", "")


def _mask(bools: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(bools.to_numpy(zero_copy_only=False), np.bool_)


def _share(mask: pa.Array) -> float:
    return float(pc.mean(mask).as_py() or 0.0)
