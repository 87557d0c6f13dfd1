"""Failed cases as training rows, with the expected answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch

from .examples import Examples
from .expect import spec_of
from .outcome import Outcome
from .suite import BehavioralTest

NO_LABEL = "no right answer stands in the case; --weak-labels takes the answer to the unchanged input for INV"
DIRECTION = "a direction says how an answer moves, not what it is"
OTHER_INPUTS = "its inputs have other columns than those of the first test"


@dataclass(frozen=True, slots=True)
class FailedRows:
    """Training rows (``inputs.*`` and ``label.*``) from failed cases.

    ``test`` is the test name of each row; ``left_out`` counts the cases without a row, by reason. ``weak``
    marks labels that are the model's own answers to unchanged inputs, shape (rows,).
    """

    batch: Batch | None
    test: list[str]
    weak: NDArray[np.bool_]
    left_out: Mapping[str, int]


def failed_rows(
    tests: Sequence[BehavioralTest],
    outcomes: Sequence[Outcome],
    *,
    target: str = "label",
    weak_labels: bool = False,
) -> FailedRows:
    """Rows of the cases that failed.

    ``weak_labels`` also includes changed copies of failed INV cases without a label, labelled with the
    model's own answer to the unchanged input.
    """
    by_name = {(test.suite, test.name): test for test in tests}
    tables: list[pa.Table] = []
    names: list[str] = []
    weak: list[bool] = []
    left_out: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.ran is None or len(outcome.ran.severity) != outcome.ran.examples.cases:
            continue
        failed = outcome.ran.failed
        if not len(failed):
            continue
        test = by_name[outcome.suite, outcome.name]
        if test.kind == "DIR":
            left_out[DIRECTION] += len(failed)
            continue
        examples = outcome.ran.examples.take(failed)
        labels, is_weak = _labels(test, examples, target, weak_labels=weak_labels)
        rows = np.flatnonzero([value is not None for value in labels])
        missing = examples.cases - len(np.unique(examples.case[rows]))
        left_out[NO_LABEL] += missing
        if not len(rows):  # a table without rows has no type of label that others could have too
            continue
        table = _table(examples.batch, rows, labels, target, f"{test.suite}/{test.name}")
        if tables and not table.schema.equals(tables[0].schema):
            left_out[OTHER_INPUTS] += examples.cases - missing
            continue
        tables.append(table)
        names += [f"{test.suite}/{test.name}"] * len(rows)
        weak += [bool(is_weak[row]) for row in rows]
    reasons = {reason: count for reason, count in left_out.items() if count}
    if not tables:
        return FailedRows(None, [], np.zeros(0, dtype=np.bool_), reasons)
    whole = Batch.from_arrow(pa.concat_tables(tables), model="behavior")
    return FailedRows(whole, names, np.array(weak), reasons)


def _labels(
    test: BehavioralTest, examples: Examples, target: str, *, weak_labels: bool
) -> tuple[list[Any], NDArray[np.bool_]]:
    """Right answer of each example, None if unknown, and mask of the model's own answers."""
    batch, case = examples.batch, examples.case
    spec = spec_of(test.expect)
    name = f"label.{target}"
    labels: list[Any] = batch.arrow(name).to_pylist() if batch.has(name) else [None] * batch.rows
    if test.kind == "MFT":
        if spec.get("expect") == "equal" and spec.get("to") is not None:
            labels = [spec["to"]] * batch.rows
        return labels, np.zeros(batch.rows, dtype=np.bool_)
    output = f"outputs.{target}"
    if not weak_labels or examples.original is None or not batch.has(output):
        return labels, np.zeros(batch.rows, dtype=np.bool_)
    answers = batch.arrow(output).to_pylist()
    own = [answers[row] for row in examples.original[case]]
    is_weak = np.array([label is None for label in labels]) & examples.is_copy
    return [mine if weak else label for label, mine, weak in zip(labels, own, is_weak, strict=True)], is_weak


def _table(batch: Batch, rows: NDArray[np.intp], labels: list[Any], target: str, where: str) -> pa.Table:
    taken = batch.take(rows)
    columns = {"id": pa.array([f"{where}/{key}" for key in taken.keys])}
    columns |= {name: taken.arrow(name) for name in taken.names if name.startswith("inputs.")}
    columns[f"label.{target}"] = pa.array([labels[row] for row in rows])
    return pa.table(columns)
