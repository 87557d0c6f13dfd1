"""Batch from a user's records, frames, files, filled templates, or function."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.pandas_types import is_frame, is_series
from outrider.data_files import is_json, json_rows, one_table
from outrider.errors import ConfigError

from .examples import Grouped
from .templates import Filled, Template, input_columns

if TYPE_CHECKING:
    import pandas as pd

CasesLike: TypeAlias = (
    "Batch | pd.DataFrame | Filled | Template | Grouped | Sequence[str] | Sequence[Sequence[str]]"
    " | Sequence[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]] | Path | str | Callable[[], Any]"
)
_PARTS = ("inputs.", "outputs.", "label.", "attrs.")
_MODEL = "behavior"  # what a batch of cases is called before a model is known


def to_cases(cases: CasesLike, *, labels: Any = None, folder: Path | None = None) -> Grouped:
    """Cases as a batch, with the case number of each row.

    Parameters
    ----------
    cases
        A Batch; texts (they become ``inputs.text``); dictionaries; a frame; a filled template; the path of a
        CSV, Parquet, Arrow, JSON or JSON lines file; or a function without arguments that returns one of
        these. A dictionary or frame holds input fields, except ``id``, ``label`` and columns with a prefix
        (``inputs.age``, ``label.price``); a dictionary with ``inputs`` is a whole record. In a list of lists
        of texts or dictionaries each inner list is a case of several examples, the original first.
    labels
        One value for all cases, or one per case; becomes ``label.label``.
    folder
        Folder that a relative path refers to.

    Raises
    ------
    ValueError
        If there is no case, or the number of labels differs.
    """
    found = _convert(cases, folder or Path())
    grouped = found if isinstance(found, Grouped) else Grouped(found, np.arange(found.rows))
    if grouped.batch.rows == 0:
        raise ValueError("at least one case expected, got none: a test without cases would pass unseen")
    if labels is None:
        return grouped
    given = np.array(_labels(labels, int(grouped.case[-1]) + 1), dtype=object)[grouped.case]
    return Grouped(grouped.batch.with_columns({"label.label": given.tolist()}), grouped.case)


def to_batch(cases: CasesLike, *, labels: Any = None, folder: Path | None = None) -> Batch:
    """Cases as one batch, as :func:`to_cases` without case numbers."""
    return to_cases(cases, labels=labels, folder=folder).batch


def _convert(cases: CasesLike, folder: Path) -> Batch | Grouped:
    if isinstance(cases, Batch | Grouped):
        return cases
    if isinstance(cases, Template):
        return _convert(cases.product(), folder)
    if isinstance(cases, Filled):
        return _of_filled(cases, folder)
    if isinstance(cases, str | Path):
        return _read(folder / cases)
    if is_frame(cases):
        return _of_frame(cases)
    if callable(cases):
        return _convert(cases(), folder)
    if isinstance(cases, set | frozenset):
        raise TypeError("cases need an order to be repeatable, got a set; pass sorted(…) of it")
    return _of_list(list(cases))


def _of_list(listed: list[Any]) -> Batch | Grouped:
    if listed and all(isinstance(case, Sequence) and not isinstance(case, str | bytes) for case in listed):
        return _of_groups(listed)
    return _of_sequence(listed)


def _of_filled(filled: Filled, folder: Path) -> Batch | Grouped:
    columns = input_columns(filled)
    if columns is not None:  # texts, straight from Arrow to Arrow
        columns["id"] = pa.array(np.arange(len(filled))).cast(pa.string())
        found: Batch | Grouped = Batch.from_columns(columns, model=_MODEL, rows=len(filled))
    else:
        found = _convert(list(filled.values), folder)
    extra: dict[str, Any] = {f"attrs.{name}": list(values) for name, values in filled.meta.items()}
    if isinstance(found, Batch):
        if filled.labels is not None:
            extra["label.label"] = list(filled.labels)
        return found.with_columns(extra) if extra else found
    each = found.case.tolist()  # what is noted of a case is noted of each of its examples
    spread = {name: [values[case] for case in each] for name, values in extra.items()}
    if filled.labels is not None:
        spread["label.label"] = _label_of_each(filled.labels, found.case)
    return Grouped(found.batch.with_columns(spread), found.case)


def _label_of_each(labels: Sequence[Any], case: NDArray[np.intp]) -> list[Any]:
    """Label of each example: that of its case, or its own if the case has a list with one per example."""
    sizes = np.bincount(case)
    place = np.arange(len(case)) - (np.cumsum(sizes) - sizes)[case]
    return [
        labels[number][at]
        if isinstance(labels[number], list | tuple) and len(labels[number]) == sizes[number]
        else labels[number]
        for number, at in zip(case.tolist(), place.tolist(), strict=True)
    ]


def _of_groups(cases: list[Sequence[Any]]) -> Grouped:
    if empty := [number for number, case in enumerate(cases) if not case]:
        raise ValueError(f"case {empty[0]} is an empty list; at least its original is expected")
    batch = _of_sequence([example for case in cases for example in case])
    number = np.repeat(np.arange(len(cases)), [len(case) for case in cases])
    ids = [
        f"{case}~{at}" if at else str(case) for case, group in enumerate(cases) for at in range(len(group))
    ]
    return Grouped(batch.with_columns({"id": np.array(ids, dtype=object)}), number)


def _of_sequence(cases: list[Any]) -> Batch:
    if all(isinstance(case, str) for case in cases):
        records = [{"inputs": {"text": case}} for case in cases]
    elif all(isinstance(case, Mapping) for case in cases):
        records = [_record(case) for case in cases]
    else:
        kinds = ", ".join(sorted({type(case).__name__ for case in cases}))
        raise TypeError(f"cases must be all texts or all dictionaries, got {kinds}")
    return Batch.from_records(records, model=_MODEL)


def _record(case: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(case.get("inputs"), Mapping):
        record = dict(case)
    else:
        record = {"inputs": {name: value for name, value in case.items() if name not in ("id", "label")}}
        record |= {name: case[name] for name in ("id", "label") if name in case}
    if "label" in record and not isinstance(record["label"], Mapping):
        record["label"] = {"label": record["label"]}
    if "id" in record:
        record["id"] = str(record["id"])
    return record


def _of_frame(frame: "pd.DataFrame") -> Batch:
    columns: dict[str, Any] = {}
    for column in frame.columns:
        series = frame[column]
        name = _full_name(str(column))
        if name == "id":
            columns[name] = [str(value) for value in series]
        else:
            objects = series.dtype == object
            columns[name] = (
                list(series.where(series.notna(), None)) if objects else pa.Array.from_pandas(series)
            )
    return Batch.from_columns(columns, model=_MODEL, rows=len(frame))


def _full_name(column: str) -> str:
    if column == "id" or column.startswith(_PARTS):
        return column
    return "label.label" if column == "label" else f"inputs.{column}"


def _read(path: Path) -> Batch | Grouped:
    if is_json(path):
        values = json_rows(path)
        kind = type(next(iter(values.values())))
        for line, value in values.items():
            if not isinstance(value, str | dict | list) or not isinstance(value, kind):
                expected = "objects, or texts, or lists of these expected, one kind in all lines"
                raise ConfigError(f"{path}, line {line}: {expected}, got {type(value).__name__}")
        return _of_list([*values.values()])
    table = one_table(path)
    columns = {_full_name(name): table.column(name) for name in table.column_names}
    if "id" in columns:
        try:
            columns["id"] = columns["id"].cast(pa.string())
        except pa.ArrowException:
            raise ConfigError(
                f"{path}: column 'id': texts or numbers expected, got {columns['id'].type}"
            ) from None
    return Batch.from_columns(columns, model=_MODEL, rows=len(table))


def _labels(labels: Any, rows: int) -> Any:
    is_listed = isinstance(labels, Sequence | np.ndarray) or is_series(labels)
    if isinstance(labels, str | bytes) or not is_listed:
        return [labels] * rows
    if len(labels) != rows:
        raise ValueError(f"one label per case expected: {rows} cases, {len(labels)} labels")
    return list(labels)
