"""Export of tests: cases as asked, perturbations frozen into variants."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import UNSET, UnsetType

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor, plain, to_tensor
from outrider.behavioral_tests.examples import Examples
from outrider.behavioral_tests.expect import spec_of
from outrider.behavioral_tests.metamorphic import DIR, INV
from outrider.behavioral_tests.mft import MFT
from outrider.behavioral_tests.outcome import Outcome
from outrider.errors import ConfigError

from .columns import MODEL
from .written import TensorType, WrittenCase, WrittenSuite, WrittenTest

AnyTest = MFT | INV | DIR


def export(name: str, tests: Sequence[AnyTest], *, seed: int = 0) -> WrittenSuite:
    """Export all cases of tests, as asked with ``seed``.

    Settings for live traffic (``live``, ``level``, ``owner``) are left out, since a file has no
    perturbations.
    """
    return WrittenSuite(outrider_suite=1, name=name, tests=[_exported(test, seed) for test in tests])


def failed_cases(
    name: str, tests: Sequence[AnyTest], outcomes: Sequence[Outcome]
) -> tuple[WrittenSuite, dict[str, str]]:
    """Failed cases as tests, and reasons for omitted tests.

    Tests of equal names from several suites are called ``suite: test``.
    """
    by_name = {(test.suite, test.name): test for test in tests}
    ran = [each for each in outcomes if each.ran is not None and each.failures]
    doubles = {each.name for each in ran if sum(other.name == each.name for other in ran) > 1}
    found: list[WrittenTest] = []
    left_out: dict[str, str] = {}
    for outcome in ran:
        assert outcome.ran is not None
        test = by_name[outcome.suite, outcome.name]
        called = f"{test.suite}: {test.name}" if test.name in doubles else test.name
        if len(outcome.ran.severity) != outcome.ran.examples.cases:
            left_out[called] = "it judges all its cases together, so none of them failed by itself"
            continue
        try:
            found.append(written_test(test, outcome.ran.examples.take(outcome.ran.failed), name=called))
        except ConfigError as error:
            left_out[called] = str(error)
    return WrittenSuite(outrider_suite=1, name=name, tests=found), left_out


def written_test(test: AnyTest, examples: Examples, *, name: str = "") -> WrittenTest:
    """Written test with the given examples as its cases."""
    where = f"test {test.name!r}"
    spec = spec_of(test.expect)
    if not spec:
        raise ConfigError(
            f"{where}: its expectation is a function of yours, which a file cannot hold; use the rules of "
            "outrider.behavioral_tests.expect, or keep the test in Python"
        )
    if not isinstance(test.aggregate, str):
        raise ConfigError(f"{where}: aggregate is a function of yours; a file holds all, any or mean")
    cases, types = written_cases(examples, where)
    if not cases:
        raise ConfigError(
            f"{where}: its perturbation applies to none of its cases, so there is nothing to write"
        )
    return WrittenTest(
        name=name or test.name,
        kind=test.kind,
        capability=test.capability,
        description=test.description,
        tolerance=test.tolerance,
        expect=json.loads(json.dumps(spec)),
        aggregate=test.aggregate,
        stop=test.stop,
        confidence=test.confidence,
        types=types,
        cases=cases,
    )


def _exported(test: AnyTest, seed: int) -> WrittenTest:
    if test.cases is None:
        raise ConfigError(
            f"test {test.name!r} has no cases of its own (it runs live): nothing can be exported"
        )
    return written_test(test, test.examples(seed=seed))


def written_cases(examples: Examples, where: str) -> tuple[list[WrittenCase], dict[str, str | TensorType]]:
    """Written cases, and column types that do not follow from the values."""
    batch, case = examples.in_order()
    parts = ("inputs.", "label.", "attrs.")
    types: dict[str, str | TensorType] = {}
    columns: dict[str, list[Any]] = {}
    for name in [name for name in batch.names if name.startswith(parts)]:
        columns[name] = _values(batch, name, where)
        kind = _explicit_type(columns[name], batch.arrow(name).type, f"{where}: {name}")
        types |= {} if kind is None else {name: kind}
    starts = np.flatnonzero(np.diff(case, prepend=-1)).tolist()
    ids = [str(batch.keys[start]) for start in starts]
    if len(set(ids)) < len(ids):
        ids = [str(number) for number in range(len(starts))]
    inputs = _inputs(columns, batch.rows)
    written = []
    for key, start, stop in zip(ids, starts, [*starts, batch.rows][1:], strict=True):
        noted = {
            name.removeprefix("attrs."): _agreed(values[start:stop], f"{where}, case {key!r}: {name}")
            for name, values in columns.items()
            if name.startswith("attrs.")
        }
        attrs = {name: value for name, value in noted.items() if value is not None}
        label, labels = _labels(columns, start, stop)
        written.append(
            WrittenCase(id=key, inputs=inputs[start:stop], label=label, labels=labels, attrs=attrs)
        )
    return written, types


def _values(batch: Batch, name: str, where: str) -> list[Any]:
    """Values of a column for JSON, floats with the fewest digits that restore them."""
    array = batch.arrow(name)
    values = plain(array, name)
    is_floats = pa.types.is_floating(array.type)
    if not is_floats and not is_tensor(array.type):
        return values
    numbers = to_tensor(array, name, 0) if is_tensor(array.type) else array.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f" and np.isinf(numbers).any():
        raise ConfigError(f"{where}: {name} holds an infinity, which JSON cannot say")
    if numbers.dtype not in (np.float32, np.float16):
        return values
    short = numbers.astype(str).astype(np.float64).tolist()
    return [None if value is None else _without_nan(few) for value, few in zip(values, short, strict=True)]


def _without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if value != value else value


def _explicit_type(values: list[Any], kind: pa.DataType, where: str) -> str | TensorType | None:
    """Type of a column if it would be inferred differently from the values, else None."""
    if is_tensor(kind):
        dtype = np.dtype(kind.value_type.to_pandas_dtype())
        is_read_so = dtype == np.float32 and any(values) and all(kind.shape)
        return None if is_read_so else TensorType(str(dtype), list(kind.shape))  # type: ignore[arg-type]  # one of them
    inferred = Batch.from_columns({"inputs.x": values}, model=MODEL).arrow("inputs.x").type
    if inferred.equals(kind):
        return None
    try:
        has_alias = not pa.types.is_temporal(kind) and not pa.types.is_binary(kind)
        if has_alias and pa.type_for_alias(str(kind)).equals(kind):
            return str(kind)
    except ValueError:
        pass
    if pa.types.is_nested(kind):  # lists of numbers come back as lists of wider numbers
        return None
    raise ConfigError(f"{where} is {kind}; a file holds texts, numbers, booleans, lists and objects")


def _inputs(columns: dict[str, list[Any]], rows: int) -> list[str | dict[str, Any]]:
    names = [name for name in columns if name.startswith("inputs.")]
    if names == ["inputs.text"] and all(isinstance(text, str) for text in columns["inputs.text"]):
        return list(columns["inputs.text"])
    return [{name.removeprefix("inputs."): columns[name][row] for name in names} for row in range(rows)]


def _agreed(values: list[Any], where: str) -> Any:
    if any(value != values[0] for value in values[1:]):
        raise ConfigError(
            f"{where} differs between the examples of one case ({str(values)[:80]}); a file has one per case"
        )
    return values[0]


def _labels(
    columns: dict[str, list[Any]], start: int, stop: int
) -> tuple[Any | UnsetType, list[Any] | UnsetType]:
    """Right answer of a case; if its examples differ, that of each."""
    names = [name for name in columns if name.startswith("label.")]
    each = [
        _label({name.removeprefix("label."): columns[name][row] for name in names})
        for row in range(start, stop)
    ]
    if all(label == each[0] for label in each):
        return each[0], UNSET
    return UNSET, [None if label is UNSET else label for label in each]


def _label(values: dict[str, Any]) -> Any | UnsetType:
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return UNSET
    if list(known) == ["label"] and not isinstance(known["label"], dict):
        return known["label"]
    return known
