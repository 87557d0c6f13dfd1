"""Great Expectations' verdicts on frames and aggregates, and its Data Docs.

The only file that imports the library (3 to 6 seconds). Without it (``outrider[gx]``) the two expectations
of every dataset, `NOT_NULL` and `IN_SET`, are judged here, and no others are taken. Its current context is
global and wrong under two threads: each call makes its own, and calls wait for one another.
"""

import logging
import math
import re
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from outrider.errors import ValidationRefused, nearest
from outrider.parts import lack_of

from .suite_files import Expected, columns_of

if TYPE_CHECKING:
    import pandas as pd

Scope: TypeAlias = Literal["new rows", "all rows"]
NOT_NULL = "expect_column_values_to_not_be_null"
IN_SET = "expect_column_values_to_be_in_set"
_ONE_AT_A_TIME = threading.Lock()
_SCHEMA = ("expect_table_column", "expect_column_to_exist", "expect_column_type_to_be")
_ACROSS_ROWS = {
    "expect_column_values_to_be_unique",
    "expect_compound_columns_to_be_unique",
    "expect_column_values_to_be_increasing",
    "expect_column_values_to_be_decreasing",
    "expect_column_value_z_scores_to_be_less_than",
    "expect_column_values_to_not_be_outliers",
}
_COUNTS = re.compile(r"(element|unexpected|missing)_(count|percent)\w*|nan_\w+")
_OWN_VALUES = ("max", "min", "median", "quantile", "most_common", "distinct")
"""Parts of names of expectations whose observed value is a record's."""
_RAISED = re.compile(r"^([\w.]*(?:Error|Exception|Warning|Interrupt|Exit))\b", re.MULTILINE)
_LINE = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True, slots=True)
class ExpectationVerdict:
    """Verdict of one expectation, without values of records."""

    item: Expected
    success: bool
    rows: list[int] = field(default_factory=list, repr=False)
    """Positions of failing rows, if rows are judged."""
    error: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    """Counts of rows, and the observed value if it is a number."""

    @property
    def reason(self) -> str:
        text = rule_text(self.item)
        if self.error:
            return f"{text} could not be evaluated: {self.error}"
        observed = self.figures.get("observed_value")
        if observed is None or any(word in self.item["type"] for word in _OWN_VALUES):
            return text
        return f"{text}: observed {observed!r}"


def rule_text(item: Mapping[str, Any]) -> str:
    return f"{item['type']}({', '.join(f'{key}={value!r}' for key, value in item['kwargs'].items())})"


@contextmanager
def _quiet() -> Iterator[Any]:
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        # Deprecations inside the library and its own dependencies are not ours to act on.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        import great_expectations as gx

        logging.getLogger("great_expectations").setLevel(logging.WARNING)  # folders that it makes and removes
        yield gx


def lack_of_library() -> str | None:
    """Sentence with the command that installs Great Expectations, where it is not installed."""
    return lack_of(["gx"], "judging expectations")


def library_version() -> str | None:
    from importlib.metadata import version

    return None if lack_of_library() else version("great_expectations")


def build_problems(suite: Sequence[Expected]) -> Iterator[str]:
    for number, item in enumerate(suite):
        try:
            with _quiet():
                _build(item)
        except ValidationRefused as error:
            yield f"[{number}]: {error}"


def scope_of(item: Expected) -> Scope:
    """New rows if each row is judged by itself."""
    if item["type"] in _ACROSS_ROWS:
        return "all rows"
    if item["type"].startswith(_SCHEMA) or lack_of_library():
        return "new rows"
    with _quiet():
        from great_expectations.expectations.expectation import (
            ColumnMapExpectation,
            ColumnPairMapExpectation,
            MulticolumnMapExpectation,
        )

        maps = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)
        return "new rows" if isinstance(_build(item), maps) else "all rows"


def ask(frame: "pd.DataFrame", suite: Sequence[Expected]) -> list[ExpectationVerdict]:
    if not suite:
        return []
    if lack_of_library():
        return [_own_verdict(item, frame) for item in suite]
    with _quiet() as gx:
        from great_expectations.data_context.types.base import ProgressBarsConfig

        context = gx.get_context(mode="ephemeral")
        context.enable_analytics(False)
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        source = context.data_sources.add_pandas("rows")
        definition = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("rows")
        # Results come in another order than the suite's, so each says which it is of.
        built = [_build(item, meta={"number": number}) for number, item in enumerate(suite)]
        result = definition.get_batch({"dataframe": frame}).validate(
            gx.ExpectationSuite(name="rows", expectations=built), result_format="COMPLETE"
        )
    found: dict[int, ExpectationVerdict] = {}
    for verdict in result.results:
        number = int(verdict.expectation_config.meta["number"])
        found[number] = _outcome(suite[number], verdict, frame)
    lost = [f"[{number}] {item['type']}" for number, item in enumerate(suite) if number not in found]
    if lost:
        raise ValidationRefused(f"Great Expectations gave no verdict on {', '.join(lost)}")
    return [found[number] for number in range(len(suite))]


def _own_verdict(item: Expected, frame: "pd.DataFrame") -> ExpectationVerdict:
    values = frame[item["kwargs"]["column"]]
    is_null = values.isna()
    fails = is_null if item["type"] == NOT_NULL else ~is_null & ~values.isin(item["kwargs"]["value_set"])
    rows = fails.to_numpy().nonzero()[0].tolist()
    return ExpectationVerdict(item, not rows, rows, figures={"element_count": len(values)})


def decide(item: Expected, metrics: Mapping[str, Any]) -> ExpectationVerdict:
    with _quiet():
        built = _build(item)
        settings = {"result_format": {"result_format": "BASIC", "partial_unexpected_count": 0}}
        try:
            found = built._validate(dict(metrics), runtime_configuration=settings)
        except Exception:  # noqa: BLE001 - of the library: its verdict is that there is none
            return ExpectationVerdict(item, False, error=_raised(traceback.format_exc(), ""))
    return ExpectationVerdict(item, bool(found["success"]), figures=_figures(found.get("result") or {}))


def _build(item: Mapping[str, Any], *, meta: Mapping[str, Any] | None = None) -> Any:
    """A suite given the configurations would only log and skip unusable ones."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    known = list_registered_expectation_implementations()
    if item["type"] not in known:
        raise ValidationRefused(
            f"expectation {item['type']!r} cannot be used: it does not exist{nearest(item['type'], known)}"
        )
    try:
        return ExpectationConfiguration(
            type=item["type"],
            kwargs=dict(item["kwargs"]),
            severity=item["severity"],
            meta={**item.get("meta", {}), **(meta or {})},
            notes=item.get("notes"),
            description=item.get("description"),
        ).to_domain_obj()
    except Exception as error:
        message = re.sub(r"\s+", " ", str(error))
        raise ValidationRefused(f"expectation {item['type']!r} cannot be used: {message}") from error


def _outcome(item: Expected, found: Any, frame: "pd.DataFrame") -> ExpectationVerdict:
    info, result = found.exception_info or {}, found.result or {}
    # Either one exception, or one for each metric that could not be computed.
    for raised in (info, *info.values()):
        if isinstance(raised, Mapping) and raised.get("raised_exception"):
            kinds = {name: str(frame[name].dtype) for name in columns_of(item) if name in frame.columns}
            holds = ", ".join(f"{name} holds {kind}" for name, kind in kinds.items())
            return ExpectationVerdict(
                item, False, error=_raised(str(raised.get("exception_traceback") or ""), holds)
            )
    if found.success:
        return ExpectationVerdict(item, True, figures=_figures(result))
    return ExpectationVerdict(
        item, False, list(map(int, result.get("unexpected_index_list") or ())), "", _figures(result)
    )


def _raised(trace: str, holds: str) -> str:
    """Type and place of an exception; its message may quote a record."""
    kinds = [kind for kind in _RAISED.findall(trace) if not kind.endswith("MetricResolutionError")]
    places = [(Path(file), line) for file, line in _LINE.findall(trace)]
    own = [f"{file.name}:{line}" for file, line in places if file.is_file() and not _is_library(file)]
    kind = kinds[0].rpartition(".")[2] if kinds else "an error"
    return f"{kind}{f' at {own[-1]}' if own else ''}{f'; {holds}' if holds else ''}"


def _is_library(file: Path) -> bool:
    return file.is_relative_to(Path(__file__).parents[2]) or bool({"site-packages", "lib"} & {*file.parts})


def _figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of a result, without values and positions of records."""
    figures: dict[str, Any] = {}
    if "unexpected_percent" in result:
        figures = {key: value for key, value in result.items() if _COUNTS.fullmatch(key)}
    observed = result.get("observed_value")
    if isinstance(observed, bool) or not isinstance(observed, Real) or not math.isfinite(observed):
        return figures
    return figures | {"observed_value": int(observed) if isinstance(observed, Integral) else float(observed)}


def rendered(outcomes: Sequence[ExpectationVerdict], *, name: str, rows: int) -> str:
    if lack := lack_of_library():
        verdicts = (f"{'passed' if one.success else 'failed'}: {rule_text(one.item)}" for one in outcomes)
        lines = (f"{name}, {rows:,} rows", *verdicts, f"Checked without Great Expectations: {lack}")
        return "".join(f"<p>{escape(line)}</p>" for line in lines)
    with _quiet() as gx:
        from great_expectations.core import ExpectationSuiteValidationResult
        from great_expectations.core.expectation_validation_result import ExpectationValidationResult
        from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
        from great_expectations.render.view.view import DefaultJinjaPageView

        passed = sum(outcome.success for outcome in outcomes)
        results = [
            ExpectationValidationResult(
                success=outcome.success,
                expectation_config=_build(outcome.item).configuration,
                result={"element_count": rows} | outcome.figures,
                exception_info=_exception(outcome),
            )
            for outcome in outcomes
        ]
        statistics = {
            "evaluated_expectations": len(outcomes),
            "successful_expectations": passed,
            "unsuccessful_expectations": len(outcomes) - passed,
            "success_percent": 100.0 * passed / len(outcomes) if outcomes else None,
        }
        result = ExpectationSuiteValidationResult(
            success=passed == len(outcomes),
            results=results,
            suite_name=name,
            statistics=statistics,
            meta={"great_expectations_version": gx.__version__, "run_id": {"run_name": name}},
        )
        view: Any = DefaultJinjaPageView()
        return str(view.render(ValidationResultsPageRenderer().render(result)))


def _exception(outcome: ExpectationVerdict) -> dict[str, Any]:
    error = outcome.error
    return {"raised_exception": bool(error), "exception_message": error, "exception_traceback": error}
