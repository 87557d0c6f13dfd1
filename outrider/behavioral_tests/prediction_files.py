"""Files of examples to predict, and of predictions."""

import csv
import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import from_values, is_tensor, plain, to_numpy, to_tensor
from outrider.data_files import flat_parts, is_json, json_rows, one_table
from outrider.errors import ConfigError

from .predictions import Columns
from .suite_file.written import atomically

if TYPE_CHECKING:
    import pandas as pd

KINDS = ".txt, .csv, .jsonl (each also .gz) or .parquet"


def read_predictions(path: Path) -> Columns:
    """Columns of a predictions file, one row per example.

    ``.txt`` is one of CheckList's formats, recognised by content, and gives the outputs ``label`` and
    ``probs``. Tables (CSV, Parquet, Arrow) and JSON lines have a column per output; ``probs[0]``,
    ``probs[1]``, … are combined. JSON lines may nest (``{"inputs": {…}, "outputs": {…}}``).
    """
    try:
        if path.name.lower().removesuffix(".gz").endswith(".txt"):
            return _of_text(path)
        if is_json(path):
            return _of_records(json_rows(path))
        table = one_table(path).combine_chunks()
        return _stacked({name: _numpy(table.column(name), name) for name in table.column_names})
    except (OSError, EOFError, zlib.error, ValueError, OverflowError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: {error}") from error


def write_examples(asked: Sequence[tuple[str, str, Batch]], path: Path) -> int:
    """Write the examples to predict, in order; return their number.

    ``.txt`` has one text per line, with line breaks replaced by spaces (CheckList's format), so each example
    must have a single text field. Other formats have the columns ``suite``, ``test``, ``id`` and
    ``inputs.*``, which are checked if the predictions file still has them.
    """
    kind = _kind(path)
    if kind == ".txt":
        lines = [" ".join(text.splitlines()) for text in _texts(asked)]
        return _write(path, "".join(f"{line}\n" for line in lines).encode(), len(lines))
    if kind == ".jsonl":
        rows = [
            {"suite": suite, "test": test, "id": record["id"], "inputs": record.get("inputs", {})}
            for suite, test, batch in asked
            for record in batch.to_records()
        ]
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        return _write(path, text.encode(), len(rows))
    table = pa.concat_tables([_table(*each) for each in asked], promote_options="default")
    sink = pa.BufferOutputStream()
    if kind == ".csv":
        if nested := [field.name for field in table.schema if pa.types.is_nested(field.type)]:
            raise ConfigError(f"{path}: {nested[0]} does not fit into a CSV file; write .jsonl or .parquet")
        return _write(path, table.to_pandas().to_csv(index=False).encode(), table.num_rows)
    pq.write_table(table, sink)
    return _write(path, sink.getvalue().to_pybytes(), table.num_rows)


def _kind(path: Path) -> str:
    name = path.name.lower()
    kind = Path(name.removesuffix(".gz")).suffix
    if kind not in (".txt", ".csv", ".jsonl", ".parquet") or (kind == ".parquet" and name.endswith(".gz")):
        raise ConfigError(f"{path}: {KINDS} expected")
    return kind


def _write(path: Path, content: bytes, rows: int) -> int:
    atomically(path, gzip.compress(content, mtime=0) if path.name.lower().endswith(".gz") else content)
    return rows


def _texts(asked: Sequence[tuple[str, str, Batch]]) -> Iterator[str]:
    for _, test, batch in asked:
        fields = [name for name in batch.names if name.startswith("inputs.")]
        if len(fields) != 1 or not pa.types.is_string(batch.arrow(fields[0]).type):
            raise ConfigError(
                f"test {test!r} asks {', '.join(fields)}; a .txt file holds one text per example: "
                "write .jsonl or .parquet"
            )
        yield from ("" if text is None else text for text in batch.column(fields[0]).tolist())


def _table(suite: str, test: str, batch: Batch) -> pa.Table:
    names = [name for name in batch.names if name.startswith("inputs.")]
    columns = {"suite": pa.repeat(suite, batch.rows), "test": pa.repeat(test, batch.rows)}
    columns |= {"id": batch.arrow("id")}
    for name in names:
        array = batch.arrow(name)
        columns[name] = pa.array(plain(array, name)) if is_tensor(array.type) else array
    return pa.table(columns)


def _of_text(path: Path) -> Columns:
    """Columns of a text file in one of CheckList's formats, recognised by content.

    ``pred_and_softmax``: a class and its probabilities; ``pred_and_conf``: a class and its confidence
    (``probs`` is then one number per row); ``softmax``: only probabilities that sum to 1 (the class is the
    most probable one); ``binary_conf``: the probability of class 1; ``pred_only``: only the answer, a whole
    line, with confidence 1. A class is a whole number or a word.
    """
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.name.lower().endswith(".gz") else content).decode("utf-8-sig")
    lines = text.removesuffix("\n").split("\n")
    table = _numeric_table(text)
    if table is None or len(table) != len(lines):
        tokens = [line.split() for line in lines]
        if _are_sentences(tokens):
            return _sure(np.array([line.strip() for line in lines], dtype=object))
        _check_columns(tokens)
        raise ValueError("lines of a label and its probabilities expected")
    first = table[0].to_numpy()
    if first.dtype.kind == "f":
        found = _of_probabilities(table.to_numpy(dtype=np.float64))
        if found is not None:
            return found
        first = first.astype(np.int64) if (first == np.round(first)).all() else first
    rest = table.iloc[:, 1:].to_numpy(dtype=np.float64)
    if rest.shape[1] == 0:
        return _sure(first)
    return {"label": first, "probs": rest[:, 0] if rest.shape[1] == 1 else rest}


def _numeric_table(text: str) -> "pd.DataFrame | None":
    """Table of lines with a word or number and equally many finite numbers; None if a line differs."""
    import pandas as pd

    try:
        frame = pd.read_csv(
            StringIO(text), sep=r"\s+", header=None, skip_blank_lines=False, keep_default_na=False,
            na_values=[""], quoting=csv.QUOTE_NONE,
        )  # fmt: skip
    except ValueError:  # some line is longer than the first
        return None
    rest = [frame[at].dtype.kind in "iuf" for at in range(1, frame.shape[1])]
    if frame.isna().to_numpy().any() or not all(rest):
        return None
    numbers = frame.select_dtypes("number").to_numpy(dtype=np.float64)
    return frame if np.isfinite(numbers).all() else None


def _are_sentences(tokens: list[list[str]]) -> bool:
    """True if answers are whole lines: most lines with several words have no numbers after the first."""
    several = [each for each in tokens if len(each) > 1]
    numeric = sum(all(_is_number(word) for word in each[1:]) for each in several)
    has_words = any(not _is_number(word) for each in tokens for word in each)
    return has_words and 2 * numeric < max(len(several), 1)


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _check_columns(tokens: list[list[str]]) -> None:
    """Raise ValueError naming the first line whose columns differ from the first line's."""
    columns = max(len(tokens[0]), 1)
    for row, each in enumerate(tokens, 1):
        if len(each) != columns:
            raise ValueError(f"line {row}: a label and {columns - 1} probabilities expected, as elsewhere")
        if odd := [at for at in range(1, columns) if not _is_number(each[at])]:
            raise ValueError(f"numbers expected in column {odd[0] + 1}, behind the label: line {row}")


def _of_probabilities(values: NDArray[np.float64]) -> Columns | None:
    """Answers from lines that hold only probabilities; None if they start with a class."""
    are_rates = ((values >= 0) & (values <= 1)).all(axis=1)
    if values.shape[1] == 1:
        if not are_rates.all():
            return None
        probs = np.hstack([1 - values, values])
        return {"label": np.argmax(probs, axis=1), "probs": probs}
    sums_up = are_rates & (np.abs(values.sum(axis=1) - 1) <= 0.02)  # they may be rounded
    if sums_up.all():
        return {"label": np.argmax(values, axis=1), "probs": values}
    if (values[:, 0] == np.round(values[:, 0])).all():
        return None
    odd = int(np.flatnonzero(~sums_up)[0])
    raise ValueError(
        f"line {odd + 1}: a class (a whole number or a word) and its probabilities, or probabilities that "
        f"sum to 1 expected, got {' '.join(f'{value:g}' for value in values[odd])}"
    )


def _sure(label: NDArray[Any]) -> Columns:
    """Columns for answers without probabilities, which count as certain, as in CheckList."""
    return {"label": label, "probs": np.ones(len(label))}


def _of_records(values: Mapping[int, Any]) -> Columns:
    rows = []
    for number, value in values.items():
        if not isinstance(value, dict):
            raise ValueError(f'line {number}: an object such as {{"label": 1}} expected, got {value!r:.80}')
        try:
            rows.append(flat_parts(value))
        except ConfigError as error:
            raise ValueError(f"line {number}: {error}") from None
    names = dict.fromkeys(name for row in rows for name in row)
    for number, row in zip(values, rows, strict=True):
        missing = [name for name in names if name not in row and not name.startswith("inputs.")]
        if missing:
            raise ValueError(f"line {number} has no {missing[0]!r}, which other lines have")
    return _stacked({name: _values([row.get(name) for row in rows], name) for name in names})


def _values(values: list[Any], name: str) -> NDArray[Any]:
    if name.startswith("inputs."):  # compared with what is asked, value by value
        kept = np.empty(len(values), dtype=object)
        kept[:] = values
        return kept
    try:
        return _numpy(from_values(values), name)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: values of one type expected; {error}") from None


def _numpy(column: pa.Array | pa.ChunkedArray, name: str) -> NDArray[Any]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if name.startswith("inputs."):
        return _values(plain(array, name), name)
    if pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
        try:
            array = from_values([np.asarray(value, dtype=np.float64) for value in array.to_pylist()])
        except (TypeError, ValueError):
            raise ValueError(f"{name}: lists of numbers expected, got {array.type}") from None
    return to_tensor(array, name) if is_tensor(array.type) else to_numpy(array, name)


def _stacked(columns: Mapping[str, NDArray[Any]]) -> Columns:
    """Columns ``probs[0]``, ``probs[1]``, … as one, shape (rows, classes)."""
    vectors: dict[str, list[NDArray[Any]]] = {}
    found: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
        vector, bracket, number = name.rstrip("]").rpartition("[")
        if not bracket or not number.isdigit():
            found[name] = values
        elif int(number) != len(vectors.setdefault(vector, [])):
            raise ValueError(f"{vector}[{len(vectors[vector])}] expected before {name}")
        else:
            vectors[vector].append(values)
    return found | {name: np.stack(parts, axis=1) for name, parts in vectors.items()}
