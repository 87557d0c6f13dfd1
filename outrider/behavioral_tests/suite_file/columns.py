"""Cases of a suite file as columns."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import UNSET, UnsetType

from outrider.assertions import Batch
from outrider.assertions.batch.columns import tensor_array
from outrider.behavioral_tests.examples import Grouped
from outrider.errors import SchemaMismatch

from .written import TensorType, WrittenCase

MODEL = "behavior"  # what a batch of cases is called before a model is known
Types = Mapping[str, str | TensorType]


def grouped(cases: Sequence[WrittenCase], labels: Any | UnsetType, types: Types) -> Grouped:
    """Examples of all cases, one row each, with case numbers.

    ``labels`` apply to cases without one; ``types`` are given for columns whose type does not follow from the
    values.
    """
    sizes = np.array([len(case.inputs) for case in cases])
    number = np.repeat(np.arange(len(cases)), sizes)
    columns: dict[str, list[Any]] = {"id": _ids(cases)}
    columns |= _inputs(cases)
    columns |= _labels(cases, labels, number)
    columns |= _of_cases("attrs", [case.attrs for case in cases], number)
    if unknown := sorted(set(types) - set(columns)):
        raise SchemaMismatch(f"types[{unknown[0]!r}]", f"one of {', '.join(columns)} expected")
    arrays = {name: _array(name, values, types.get(name), cases, number) for name, values in columns.items()}
    return Grouped(Batch.from_columns(arrays, model=MODEL, rows=len(number)), number)


def _ids(cases: Sequence[WrittenCase]) -> list[str]:
    if all(len(case.inputs) == 1 for case in cases):
        return [case.id for case in cases]
    return [f"{case.id}~{at}" if at else case.id for case in cases for at in range(len(case.inputs))]


def _inputs(cases: Sequence[WrittenCase]) -> dict[str, list[Any]]:
    examples = [example for case in cases for example in case.inputs]
    if all(isinstance(example, str) for example in examples):
        return {"inputs.text": examples}
    records = [{"text": example} if isinstance(example, str) else example for example in examples]
    names = dict.fromkeys(name for record in records for name in record)
    return {f"inputs.{name}": [record.get(name) for record in records] for name in names}


def _labels(
    cases: Sequence[WrittenCase], labels: Any | UnsetType, number: np.ndarray
) -> dict[str, list[Any]]:
    if all(case.labels is UNSET for case in cases):
        answers = [_label(labels if case.label is UNSET else case.label) for case in cases]
        return _of_cases("label", answers, number)
    answers = []
    for case in cases:
        if case.labels is UNSET:
            answers += [_label(labels if case.label is UNSET else case.label)] * len(case.inputs)
            continue
        if case.label is not UNSET or len(case.labels) != len(case.inputs):
            raise SchemaMismatch(
                "labels",
                f"case {case.id!r}: either label, or labels with one for each of its {len(case.inputs)} "
                f"examples expected, got {len(case.labels)}",
            )
        answers += [_label(each) for each in case.labels]
    return _of_cases("label", answers, np.arange(len(answers)))


def _label(label: Any | UnsetType) -> dict[str, Any]:
    if label is UNSET:
        return {}
    return label if isinstance(label, dict) else {"label": label}


def _of_cases(part: str, values: list[dict[str, Any]], number: np.ndarray) -> dict[str, list[Any]]:
    """Columns of values that occur once per case, repeated for its examples."""
    names = dict.fromkeys(name for each in values for name in each)
    rows = number.tolist()
    columns = {}
    for name in names:
        column = [each.get(name) for each in values]
        columns[f"{part}.{name}"] = column if len(rows) == len(column) else [column[row] for row in rows]
    return columns


def _array(
    name: str,
    values: list[Any],
    kind: str | TensorType | None,
    cases: Sequence[WrittenCase],
    number: np.ndarray,
) -> Any:
    try:
        if isinstance(kind, TensorType):
            return _tensor(values, kind)
        if kind is not None:
            return pa.array(values, pa.type_for_alias(kind))
        # Batch.from_columns finds the type; what it cannot is found out here, where the case is known.
        return _of_found_type(name, values)
    except (SchemaMismatch, pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
        row = _odd_row(values, kind)
        wanted = (
            f"{_type_text(kind)} expected" if kind else f"one type expected, that of {str(values[0])[:40]!r}"
        )
        raise SchemaMismatch(
            name, f"case {cases[number[row]].id!r}: {wanted}, got {str(values[row])[:80]!r} ({error})"
        ) from error


def _type_text(kind: str | TensorType) -> str:
    return f"{kind.dtype} of shape {kind.shape}" if isinstance(kind, TensorType) else kind


def _tensor(values: list[Any], kind: TensorType) -> pa.Array:
    null = np.array([value is None for value in values])
    shapes = {np.shape(value) for value in values if value is not None}
    if odd := shapes - {tuple(kind.shape)}:
        raise ValueError(f"shape {list(odd.pop())}")
    if not shapes:
        raise ValueError("no tensor")
    zero = np.zeros(kind.shape, dtype=np.bool_)
    stacked = np.stack([zero if value is None else np.asarray(value) for value in values])
    if stacked.dtype.kind == "O" and kind.dtype.startswith("float"):
        stacked = stacked.astype(np.float64)  # a null among numbers is NaN
    if stacked.dtype.kind not in "biuf":
        raise ValueError("numbers expected")
    with np.errstate(over="raise", invalid="ignore"):
        exact = stacked.astype(kind.dtype)
    if exact.dtype.kind != "f" and (exact != stacked).any():
        raise ValueError(f"a number that {kind.dtype} cannot hold")
    return tensor_array(exact, null if null.any() else None)


def _of_found_type(name: str, values: list[Any]) -> pa.Array:
    """Column whose type is inferred from the values; tensors get single precision."""
    column = Batch.from_columns({name: values}, model=MODEL).arrow(name)
    if pa.types.is_list(column.type):
        present = [value for value in values if value is not None]
        with suppress(ValueError, TypeError), np.errstate(over="raise"):
            np.array(present, dtype=np.float32)  # lists of several lengths stay lists
    return column


def _odd_row(values: list[Any], kind: str | TensorType | None) -> int:
    """Index of the first value that cannot share a column with the first value."""
    for row, value in enumerate(values):
        try:
            if isinstance(kind, TensorType):
                _tensor([value], kind)
            elif kind is not None:
                pa.array([value], pa.type_for_alias(kind))
            else:
                _of_found_type("inputs.x", [values[0], value])
        except (SchemaMismatch, pa.ArrowException, ValueError, TypeError, ArithmeticError):
            return row
    return 0
