"""Validation of dataset rows: own checks, then Great Expectations decides.

Great Expectations passes an empty suite, an empty frame and a column that is null throughout: our floor
checks refuse those before it is asked. The only file that imports it (3 to 6 seconds).
"""

import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import ValidationRefused

if TYPE_CHECKING:
    import pandas as pd

NOT_NULL = "expect_column_values_to_not_be_null"
EXTREMES: Mapping[str, Callable[..., Any]] = {"min": np.min, "max": np.max, "mean": np.mean}
"""Figures that stand for a tensor."""
BLOCK_ROWS = 4096
# The library keeps the current context in a global: two calls at once would mix their verdicts up.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for a model's data."""

    target: str = "label"
    """Label field that every row must have."""
    classes: Sequence[int | str] = ()
    """Its allowed values; empty when it has no fixed set."""
    inputs: Sequence[str] = ()
    """Input fields that may not be null."""
    expectations: Sequence[Mapping[str, Any]] = ()
    """The user's own: ``{"type": "expect_…", "kwargs": {…}}``. A tensor column ``inputs.image`` is offered as
    ``inputs.image.min``, ``inputs.image.max`` and ``inputs.image.mean``."""


@dataclass(frozen=True, slots=True)
class Validated:
    """Rows that passed, reasons of the others, and a summary."""

    rows: list[int]
    quarantined: dict[int, str]
    summary: dict[str, Any]


def validate(batch: Batch, rules: Rules, *, reference: pa.Schema | None = None) -> Validated:
    """Judge rows that are about to become a dataset version.

    Parameters
    ----------
    reference
        Schema of the dataset these rows will be trained with; inputs and label must have its types.

    Raises
    ------
    ValidationRefused
        If the rows cannot be used as a whole, or none of them passes.
    """
    suite = expectations(batch, rules)
    refuse(floor_problems(batch, rules, suite, reference))
    reasons = non_finite(batch)
    verdict = _ask(_frame(batch, columns_read(suite)), suite)
    refuse(verdict.problems)
    for row, why in verdict.rows.items():
        reasons.setdefault(row, []).extend(why)
    good = [row for row in range(batch.rows) if row not in reasons]
    quarantined = {row: "; ".join(why) for row, why in sorted(reasons.items())}
    if not good:
        first = next(iter(quarantined.values()))
        refuse([f"none of {batch.rows} rows passes; the first: {first}"])
    summary = {
        "great_expectations": verdict.version,
        "expectations": suite,
        "rows": batch.rows,
        "quarantined": len(quarantined),
    }
    return Validated(good, quarantined, summary)


def refuse(problems: Sequence[str]) -> None:
    """Raise ValidationRefused with all problems, if there are any."""
    if problems:
        raise ValidationRefused("; ".join(problems))


def expectations(batch: Batch, rules: Rules) -> list[dict[str, Any]]:
    """Expectations from the model's declaration, then the user's own."""
    target = f"label.{rules.target}"
    suite: list[dict[str, Any]] = []
    if batch.has(target):
        suite.append(_expect(NOT_NULL, target))
        if rules.classes:
            suite.append(
                _expect("expect_column_values_to_be_in_set", target)
                | {"kwargs": {"column": target, "value_set": list(rules.classes)}}
            )
    schema = batch.to_arrow().schema
    for name in rules.inputs:
        if batch.has(f"inputs.{name}"):
            tensor = isinstance(schema.field(f"inputs.{name}").type, pa.FixedShapeTensorType)
            column = f"inputs.{name}.min" if tensor else f"inputs.{name}"
            suite.append(_expect(NOT_NULL, column))
    return suite + [
        {"type": str(own["type"]), "kwargs": dict(own.get("kwargs", {}))} for own in rules.expectations
    ]


def _expect(kind: str, column: str) -> dict[str, Any]:
    return {"type": kind, "kwargs": {"column": column}}


def floor_problems(
    batch: Batch, rules: Rules, suite: Sequence[object], reference: pa.Schema | None
) -> list[str]:
    """Reasons to refuse the rows as a whole that need no library."""
    if batch.rows == 0:
        return ["there is no row"]
    if not suite:
        return ["there is nothing to check by: declare classes, inputs or expectations of the model"]
    schema = batch.to_arrow().schema
    problems = [
        f"{name} is missing"
        for name in (f"label.{rules.target}", *(f"inputs.{field}" for field in rules.inputs))
        if not batch.has(name)
    ]
    problems += [
        f"{name} is null in every row"
        for name in batch.names
        if name.startswith(("inputs.", "label.")) and bool(batch.is_null(name).all())
    ]
    for field in reference or ():
        if field.name.startswith("inputs.") or field.name == f"label.{rules.target}":
            kind = schema.field(field.name).type if field.name in schema.names else None
            if kind != field.type:
                problems.append(
                    f"{field.name} is {kind or 'absent'}, but {field.type} in the replayed dataset"
                )
    return problems


def non_finite(batch: Batch) -> dict[int, list[str]]:
    """Rows with NaN or infinity in an input or label, and where."""
    reasons: dict[int, list[str]] = {}
    for f in batch.to_arrow().schema:
        if not f.name.startswith(("inputs.", "label.")):
            continue
        if isinstance(f.type, pa.FixedShapeTensorType):
            values = batch.tensor(f.name, null=0).reshape(batch.rows, -1)
            bad = ~np.isfinite(values).all(axis=1)
        elif pa.types.is_list(f.type):
            bad = _holds_non_finite(batch, f.name)
        elif pa.types.is_floating(f.type):
            bad = ~np.isfinite(batch.column(f.name, null=0.0))
        else:
            continue
        for row in np.flatnonzero(bad):
            reasons.setdefault(int(row), []).append(f"{f.name} is NaN or infinite")
    return reasons


def _holds_non_finite(batch: Batch, name: str) -> NDArray[np.bool_]:
    """Mask of the lists with NaN or infinity in an element."""
    elements = batch.explode(name)
    bad = np.zeros(elements.rows, dtype=np.bool_)
    for field in elements.to_arrow().schema:
        if field.name.startswith(name) and pa.types.is_floating(field.type):
            bad |= ~np.isfinite(elements.column(field.name, null=0.0))
    return elements.reduce(bad, "any")


def columns_read(suite: Sequence[Mapping[str, Any]]) -> dict[str, bool] | None:
    """Columns that expectations read, True for more than nulls.

    None where one of them may read any column.
    """
    read: dict[str, bool] = {}
    for item in suite:
        kind, kwargs = str(item["type"]), item["kwargs"]
        if not kind.startswith("expect_column_") or "row_condition" in kwargs:
            return None
        named = [kwargs[name] for name in ("column", "column_A", "column_B") if name in kwargs]
        for name in (*named, *kwargs.get("column_list", ())):
            read[name] = read.get(name, False) or kind != NOT_NULL
    return read


def _frame(batch: Batch, read: Mapping[str, bool] | None) -> "pd.DataFrame":
    """Frame of scalars under their names, tensors as minimum, maximum and mean.

    Great Expectations copies the frame for each expectation: it holds what they read, and zeros for values of
    which only nulls count.
    """
    import pandas as pd

    columns: dict[str, Any] = {}
    table = batch.to_arrow()
    for f in table.schema:
        is_tensor = isinstance(f.type, pa.FixedShapeTensorType)
        names = [f"{f.name}.{extreme}" for extreme in EXTREMES] if is_tensor else [f.name]
        if read is not None and read.keys().isdisjoint(names):
            continue
        if is_tensor:
            columns |= _extremes(batch, f.name)
        elif read is None or read[f.name]:
            columns[f.name] = _values(table.column(f.name))
        else:
            columns[f.name] = np.where(batch.is_null(f.name), np.float32(np.nan), np.float32(0.0))
    return pd.DataFrame(columns, index=pd.RangeIndex(batch.rows))


def _extremes(batch: Batch, name: str) -> dict[str, NDArray[np.float64]]:
    """Minima, maxima and means of a column's tensors, block by block."""
    found: dict[str, list[NDArray[np.float64]]] = {f"{name}.{extreme}": [] for extreme in EXTREMES}
    for start in range(0, batch.rows, BLOCK_ROWS):
        block = batch.slice(start, BLOCK_ROWS)
        values = block.tensor(name, null=np.nan).reshape(block.rows, -1)
        for extreme, reduce in EXTREMES.items():
            found[f"{name}.{extreme}"].append(reduce(values, axis=1).astype(np.float64))
    return {extreme: np.concatenate(blocks) for extreme, blocks in found.items()}


def _values(column: pa.Array) -> Any:
    """Values for pandas, Python objects only where no type keeps them."""
    import pandas as pd

    if pa.types.is_floating(column.type) or (pa.types.is_integer(column.type) and not column.null_count):
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.to_pandas()
    return pd.Series(column.to_pylist(), dtype=object).infer_objects()


@dataclass(frozen=True, slots=True)
class _Verdict:
    rows: dict[int, list[str]]
    problems: list[str]
    version: str


def _ask(frame: "pd.DataFrame", suite: Sequence[Mapping[str, Any]]) -> _Verdict:
    """Great Expectations' verdict, from a context of its own that is forgotten afterwards."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        # Deprecations inside the library and its own dependencies are not ours to act on.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        import great_expectations as gx
        from great_expectations.data_context.types.base import ProgressBarsConfig

        logging.getLogger("great_expectations").setLevel(logging.WARNING)  # folders that it makes and removes
        context = gx.get_context(mode="ephemeral")
        context.enable_analytics(False)
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        source = context.data_sources.add_pandas("rows")
        definition = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("rows")
        built = gx.ExpectationSuite(name="rows", expectations=[_build(item) for item in suite])
        result = definition.get_batch({"dataframe": frame}).validate(built, result_format="COMPLETE")
    rows: dict[int, list[str]] = {}
    problems: list[str] = []
    for item in result.results:
        if item.success:
            continue
        reason = _reason(item)
        indices = (item.result or {}).get("unexpected_index_list")
        if indices:
            for index in indices:
                rows.setdefault(int(index), []).append(reason)
        else:
            problems.append(reason)
    return _Verdict(rows, problems, str(gx.__version__))


def _build(item: Mapping[str, Any]) -> Any:
    """Build one expectation; a suite given the configurations would only log and skip unusable ones."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    try:
        return ExpectationConfiguration(type=item["type"], kwargs=dict(item["kwargs"])).to_domain_obj()
    except Exception as error:
        raise ValidationRefused(f"expectation {item['type']!r} cannot be used: {error}") from error


def _reason(item: Any) -> str:
    config = item.expectation_config
    kwargs = {key: value for key, value in config.kwargs.items() if key != "batch_id"}
    text = f"{config.type}({', '.join(f'{key}={value!r}' for key, value in kwargs.items())})"
    info = item.exception_info or {}
    # Either one exception, or one for each metric that could not be computed.
    for raised in (info, *info.values()):
        if isinstance(raised, Mapping) and raised.get("raised_exception"):
            return f"{text} could not be evaluated: {raised.get('exception_message')}"
    observed = (item.result or {}).get("observed_value")
    return text if observed is None else f"{text}: observed {observed!r}"
