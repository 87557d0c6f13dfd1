"""Validation of dataset rows: own checks, then Great Expectations decides.

Great Expectations passes an empty suite, an empty frame and a column of nulls: own checks refuse those first.
Row expectations judge the new rows, aggregates and table rules the version as it will be.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import ValidationRefused

from . import expectations as gx
from .aggregates import (
    Aggregates,
    adds_up,
    aggregates,
    can_judge,
    class_mix,
    class_shift,
    merged,
    metrics,
    named_values,
    range_growth,
)
from .expectations import IN_SET, NOT_NULL, ExpectationVerdict
from .frames import columns_read, counts, frame_of, numbers_of, offered
from .suite_files import Expected, resolved, unknown_columns

MOST_IDS = 5


@dataclass(frozen=True, slots=True)
class Rules:
    target: str = "label"
    """Label field that every row must have."""
    classes: Sequence[int | str] = ()
    """Its allowed values; empty when it has no fixed set."""
    inputs: Sequence[str] = ()
    """Input fields that the model is fed; empty: every input column is read."""
    nullable: Collection[str] = ()
    """Those of them that a row may lack."""
    expectations: Sequence[Mapping[str, Any]] = ()
    """``{"type": "expect_…", "kwargs": {…}, "severity": "critical"}``; a tensor column ``inputs.image`` is
    offered as ``inputs.image.min``, ``inputs.image.max`` and ``inputs.image.mean``."""
    class_shift: float = 0.2
    """Share of rows that may change class against the parent."""
    range_growth: float = 4.0
    """Widths of the parent's range that values may exceed it by."""
    against_parent: Literal["critical", "warning"] = "warning"
    """Severity of both."""

    def reads(self, column: str) -> bool:
        if column.startswith("inputs."):
            return not self.inputs or column.removeprefix("inputs.") in self.inputs
        return column == f"label.{self.target}"


@dataclass(slots=True)
class Earlier:
    """Version to compare with. ``replaced`` ids come again; ``full`` judges its rows again."""

    aggregates: Aggregates | None
    read: Callable[[], Batch]
    stays: bool = True
    replaced: Sequence[str] = ()
    full: bool = False
    nulls: Sequence[str] = ()
    _rows: Batch | None = field(default=None, init=False, repr=False)

    def rows(self) -> Batch:
        """Rows that stay; read once."""
        if self._rows is None:
            rows = self.read()
            gone = np.isin(np.asarray(rows.keys, dtype=str), np.asarray(self.replaced, dtype=str))
            self._rows = rows.take(~gone) if gone.any() else rows
        return self._rows


@dataclass(frozen=True, slots=True)
class Validated:
    rows: list[int]
    quarantined: dict[int, str]
    summary: dict[str, Any]
    outcomes: list[ExpectationVerdict] = field(default_factory=list, repr=False)


def validate(
    batch: Batch,
    rules: Rules,
    *,
    reference: pa.Schema | None = None,
    earlier: Earlier | None = None,
) -> Validated:
    """``reference``: schema of the dataset that these rows are trained with."""
    return _Judgement(batch, rules, reference, earlier).result()


class _Judgement:
    def __init__(
        self, batch: Batch, rules: Rules, reference: pa.Schema | None, earlier: Earlier | None
    ) -> None:
        self.batch, self.rules, self.earlier = batch, rules, earlier
        self.grows = earlier is not None and earlier.stays
        self.suite = expectations(batch, rules)
        self.outcomes: list[ExpectationVerdict] = []
        self.problems = floor_problems(batch, rules, self.suite, reference)
        self.warnings: list[dict[str, Any]] = []
        self.reasons: dict[int, list[str]] = {}
        self._judge_without_library()
        self._judge_undeclared()
        for column, rows in non_finite(batch).items():
            self._judge_non_finite(column, rows)
        for reason in absent(batch, rules):
            for row in range(batch.rows):
                self.reasons.setdefault(row, []).append(reason)
        self._refuse()
        own = self.suite[len(self.suite) - len(rules.expectations) :]
        refuse([f"expectations{problem}" for problem in unknown_columns(own, offered(batch))])

    def result(self) -> Validated:
        """Rows first, then the version that the good ones make."""
        own = [item for item in self.suite if item not in self._added]
        scopes = [gx.scope_of(item) for item in own]
        of_rows = [item for item, scope in zip(own, scopes, strict=True) if scope == "new rows"]
        of_all = [item for item, scope in zip(own, scopes, strict=True) if scope == "all rows"]
        if self.grows and self.earlier is not None and self.earlier.full:
            of_all = [*of_rows, *of_all]
        else:
            frame = frame_of(self.batch, columns_read(of_rows))
            for outcome in gx.ask(frame, of_rows):
                self._take(outcome, first=0)
            del frame
        self._ask_all(of_all, self.batch)
        self._refuse()
        good = np.ones(self.batch.rows, dtype=np.bool_)
        good[list(self.reasons)] = False
        if not good.any():
            first = "; ".join(self.reasons[min(self.reasons)])
            self.problems.append(f"none of {self.batch.rows} rows passes; the first: {first}")
            self._refuse()
        kept = self.batch if good.all() else self.batch.take(good)
        state = self._state(kept)
        judged = [item for item in self._added if can_judge(state, item)]
        for item in judged:
            self._take(gx.decide(item, metrics(state, item)), first=0)
        self._ask_all([item for item in self._added if item not in judged], kept)
        self._against_parent(state)
        self._refuse()
        return self._validated(good, state)

    def _judge_without_library(self) -> None:
        lack = gx.lack_of_library()
        if lack and self.rules.expectations:
            raise ValidationRefused(lack)
        if lack:
            text = f"nulls, classes, types and finite numbers are checked, nothing else: {lack}"
            self._warn({"type": "own_checks", "kwargs": {}}, "info", text)

    def _judge_undeclared(self) -> None:
        """Null columns that no rule names, if these rows are the whole version."""
        for name in _null_columns(self.batch) if not self.grows else ():
            if name not in _needed(self.rules):
                text = f"{name} is null in every row"
                self._warn({"type": "null_column", "kwargs": {"column": name}}, "warning", text)

    def _judge_non_finite(self, column: str, rows: Sequence[int]) -> None:
        reason = f"{column} is NaN or infinite"
        if not self.rules.reads(column):
            text = f"{reason} in {len(rows)} rows; the model is not fed it"
            self._warn({"type": "non_finite", "kwargs": {"column": column}}, "warning", text, rows)
            return
        for row in rows:
            self.reasons.setdefault(row, []).append(reason)

    def _ask_all(self, suite: list[Expected], batch: Batch) -> None:
        """Expectations on all rows, the earlier ones first."""
        if not suite:
            return
        read = columns_read(suite)
        frame, first = frame_of(batch, read), 0
        if self.grows and self.earlier is not None:
            import pandas as pd

            old = self.earlier.rows()
            first = old.rows
            frame = pd.concat([frame_of(old, read), frame], ignore_index=True)
        for outcome in gx.ask(frame, suite):
            self._take(outcome, first=first)

    def _take(self, outcome: ExpectationVerdict, *, first: int) -> None:
        """Rows before ``first`` are in an earlier version and stay there."""
        self.outcomes.append(outcome)
        if outcome.success:
            return
        new = [row - first for row in outcome.rows if row >= first]
        severity = outcome.item["severity"]
        if any(outcome.item is item for item in self._of_nulls):
            self._quarantine_nulls(outcome.item, new)
            return
        if severity != "critical":
            self._warn(outcome.item, severity, outcome.reason, new)
            return
        for row in new:
            self.reasons.setdefault(row, []).append(outcome.reason)
        old = [row for row in outcome.rows if row < first]
        if old and (
            not new or gx.scope_of(outcome.item) == "new rows"
        ):  # of copies, the new ones are at fault
            self.problems.append(f"{outcome.reason}: {self._earlier_rows(old)} do not pass")
        elif not outcome.rows:
            self.problems.append(outcome.reason)

    @cached_property
    def _of_nulls(self) -> list[Expected]:
        """Not-null expectations of inputs that are not declared nullable."""
        own = len(self.suite) - len(self.rules.expectations)
        return [item for item in self.suite[:own] if item["kwargs"]["column"] != f"label.{self.rules.target}"]

    def _quarantine_nulls(self, item: Expected, rows: Sequence[int]) -> None:
        """An input that becomes null quarantines its rows and warns."""
        name = item["kwargs"]["column"]
        for row in rows:
            self.reasons.setdefault(row, []).append(f"{name} is null, and nothing says that it may be")
        text = (
            f"{name} is null in {len(rows):,} of {self.batch.rows:,} rows, and nothing says that it may be; "
            f'they are left out until [models.{self.batch.model}.columns] declares it: "{name}" = "TYPE?"'
        )
        self._warn({"type": "null_begins", "kwargs": {"column": name}}, "warning", text, rows)

    def _earlier_rows(self, rows: Sequence[int]) -> str:
        assert self.earlier is not None
        keys = self.earlier.rows().keys
        ids = ", ".join(str(keys[row]) for row in rows[:MOST_IDS])
        return f"rows of the version before it ({len(rows)}, such as {ids})"

    def _warn(self, item: Mapping[str, Any], severity: str, text: str, rows: Sequence[int] = ()) -> None:
        keys = self.batch.keys
        self.warnings.append(
            {
                "rule": item["type"],
                "field": item["kwargs"].get("column"),
                "severity": severity,
                "text": text,
                "rows": len(rows),
                "ids": [str(keys[row]) for row in rows[:MOST_IDS]],
            }
        )

    def _refuse(self) -> None:
        """Raises with all problems at once."""
        if self.problems:
            raise ValidationRefused("; ".join(self.problems), rows=self._quarantined)

    @property
    def _quarantined(self) -> dict[int, str]:
        return {row: "; ".join(why) for row, why in sorted(self.reasons.items())}

    @cached_property
    def _added(self) -> list[Expected]:
        """Expectations that aggregates can judge."""
        schema = self.batch.to_arrow().schema
        return [item for item in self.suite if adds_up(item) and counts(schema, item)]

    @cached_property
    def _sets(self) -> list[tuple[str, Sequence[Any]]]:
        counted = [(item["kwargs"].get("column"), named_values(item)) for item in self._added]
        sets: list[tuple[str, Sequence[Any]]] = [
            (name, values) for name, values in counted if name and values is not None
        ]
        if self.rules.classes:
            sets.append((f"label.{self.rules.target}", list(self.rules.classes)))
        return sets

    def _aggregates(self, batch: Batch) -> Aggregates:
        read = {item["kwargs"].get("column") for item in self._added} | {name for name, _ in self._sets}
        return aggregates(batch.rows, numbers_of(batch, read - {None}), self._sets)

    def _state(self, kept: Batch) -> Aggregates:
        new = self._aggregates(kept)
        if not self.grows or self._parent is None:
            return new
        # Handed on are all numeric inputs and labels: one that is not there was no column of the parent.
        absent = [name for name in new["columns"] if name.startswith(("inputs.", "label."))]
        return merged(self._parent, new, absent=new["columns"] if self._is_read else absent)

    @cached_property
    def _parent(self) -> Aggregates | None:
        """Aggregates of the earlier rows: inherited, or counted if those do not suffice."""
        if self.earlier is None:
            return None
        known = self.earlier.aggregates
        if not self.earlier.stays:
            return known
        if not self._is_read:
            return known
        return self._aggregates(self.earlier.rows())

    @cached_property
    def _is_read(self) -> bool:
        """The earlier rows are read, as their aggregates do not suffice."""
        if self.earlier is None or not self.earlier.stays:
            return False
        known = self.earlier.aggregates
        return (
            self.earlier.full
            or bool(self.earlier.replaced)
            or not all(can_judge(known, item) for item in self._added)
        )

    def _against_parent(self, state: Aggregates) -> None:
        parent, rules = self._parent, self.rules
        if parent is None:
            return
        label = f"label.{rules.target}"
        old, new = (class_mix(side, label, list(rules.classes)) for side in (parent, state))
        if old and new:
            change = f"{(shift := class_shift(old, new)):.2f} of the rows change class"
            if shift > rules.class_shift:
                self._report("class_shift", label, change, rules.class_shift)
        for name in sorted(parent["columns"].keys() & state["columns"].keys()):
            growth = range_growth(parent["columns"][name], state["columns"][name])
            if growth is not None and growth > rules.range_growth:
                change = f"values reach {growth:.1f} widths beyond the range"
                self._report("range_growth", name, change, rules.range_growth)

    def _report(self, rule: str, column: str, change: str, limit: float) -> None:
        text = f"{column}: {change} against the version before, at most {limit:g} expected ({rule})"
        if self.rules.against_parent == "critical":
            self.problems.append(text)
        else:
            self._warn({"type": rule, "kwargs": {"column": column}}, "warning", text)

    def _validated(self, good: NDArray[np.bool_], state: Aggregates) -> Validated:
        quarantined = self._quarantined
        summary = {
            "great_expectations": gx.library_version(),
            "expectations": self.suite,
            "rows": self.batch.rows,
            "quarantined": len(quarantined),
            "warnings": self.warnings,
            "nulls": self._nulls(good),
            "aggregates": state,
        }
        return Validated(np.flatnonzero(good).tolist(), quarantined, summary, self.outcomes)

    def _nulls(self, good: NDArray[np.bool_]) -> list[str]:
        there = [name for name in self.rules.inputs if self.batch.has(f"inputs.{name}")]
        found = {name for name in there if bool((self.batch.is_null(f"inputs.{name}") & good).any())}
        handed_on = self.earlier.nulls if self.grows and self.earlier is not None else ()
        return sorted(found.union(handed_on))


def refuse(problems: Sequence[str]) -> None:
    if problems:
        raise ValidationRefused("; ".join(problems))


def expectations(batch: Batch, rules: Rules) -> list[Expected]:
    """From the model's declaration, then the user's own."""
    target = f"label.{rules.target}"
    suite: list[Expected] = []
    if batch.has(target):
        suite.append(_expect(NOT_NULL, target))
        if rules.classes:
            suite.append(_expect(IN_SET, target, value_set=rules.classes))
    schema = batch.to_arrow().schema
    for name in rules.inputs:
        if name not in rules.nullable and batch.has(f"inputs.{name}"):
            tensor = isinstance(schema.field(f"inputs.{name}").type, pa.FixedShapeTensorType)
            suite.append(_expect(NOT_NULL, f"inputs.{name}.min" if tensor else f"inputs.{name}"))
    own = [{"kwargs": {}, "severity": "critical", **item} for item in rules.expectations]
    return suite + resolved(own, offered(batch), rules.target)


def _expect(kind: str, column: str, *, value_set: Sequence[int | str] | None = None) -> Expected:
    values = {} if value_set is None else {"value_set": list(value_set)}
    return {"type": kind, "kwargs": {"column": column} | values, "severity": "critical"}


def floor_problems(
    batch: Batch, rules: Rules, suite: Sequence[object], reference: pa.Schema | None
) -> list[str]:
    """Reasons to refuse all rows that need no library."""
    if batch.rows == 0:
        return ["there is no row"]
    if not suite:
        return ["there is nothing to check by: declare classes, inputs or expectations of the model"]
    schema = batch.to_arrow().schema
    problems = [f"{name} is missing" for name in _needed(rules) if not batch.has(name)]
    null = _null_columns(batch)
    fed = [name for name in batch.names if name.startswith("inputs.") and rules.reads(name)]
    lacking = {*_needed(rules), *(fed if all(name in null for name in fed) else ())}
    problems += [f"{name} is null in every row" for name in null if name in lacking]
    for f in reference or ():
        if rules.reads(f.name):
            kind = schema.field(f.name).type if f.name in schema.names else None
            if kind != f.type and (kind is not None or f.name in _needed(rules)):
                problems.append(f"{f.name} is {kind or 'absent'}, but {f.type} in the replayed dataset")
    return problems


def absent(batch: Batch, rules: Rules) -> list[str]:
    there = {name: batch.has(name) for name in _needed(rules)}
    missing = [f"{name} is missing" for name, known in there.items() if not known]
    return missing + [
        f"{name} is null" for name, known in there.items() if known and bool(batch.is_null(name).all())
    ]


def _needed(rules: Rules) -> list[str]:
    inputs = [f"inputs.{field}" for field in rules.inputs if field not in rules.nullable]
    return [f"label.{rules.target}", *inputs]


def _null_columns(batch: Batch) -> list[str]:
    return [
        name
        for name in batch.names
        if name.startswith(("inputs.", "label.")) and bool(batch.is_null(name).all())
    ]


def non_finite(batch: Batch) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
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
        if bad.any():
            found[f.name] = np.flatnonzero(bad).tolist()
    return found


def _holds_non_finite(batch: Batch, name: str) -> NDArray[np.bool_]:
    elements = batch.explode(name)
    bad = np.zeros(elements.rows, dtype=np.bool_)
    for f in elements.to_arrow().schema:
        if f.name.startswith(name) and pa.types.is_floating(f.type):
            bad |= ~np.isfinite(elements.column(f.name, null=0.0))
    return elements.reduce(bad, "any")
