"""Assertions applied to human labels in place of the model's answers.

A label that breaks a rule is wrong, just as a prediction that breaks it (Kang et al., "Model Assertions for
Monitoring and Improving ML Models", MLSys 2020, §2: validating human labels).
"""

from dataclasses import dataclass
from types import CellType

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion
from outrider.assertions.batch import Batch

from .flags import Flags

MODEL = "model"
"""Slot that keeps the model's answers in a label view, for assertions that compare them with labels."""


def label_view(batch: Batch) -> Batch:
    """Labelled records of a batch with their labels as outputs.

    Each ``label.<name>`` replaces ``outputs.<name>``. Other outputs (scores, probabilities) are dropped,
    since people gave none. The model's answers stay available as ``answers("model")``, so that
    ``label_differs("model")`` finds labels that contradict them. Records without any label are left out.

    Examples
    --------
    >>> output, label = {"label": "child", "score": 0.9}, {"label": "adult"}
    >>> records = [{"inputs": {"age": 3}, "outputs": output, "label": label}, {"inputs": {"age": 4}}]
    >>> view = label_view(Batch.from_records(records, model="m"))
    >>> view.column("outputs.label").tolist(), view.answers("model").column("outputs.label").tolist()
    (['adult'], ['child'])
    """
    names = [name for name in batch.names if name.startswith("label.")]
    labelled = np.zeros(batch.rows, dtype=np.bool_)
    for name in names:
        labelled |= ~batch.is_null(name)
    kept = batch.take(labelled)
    labels = {name.partition(".")[2]: kept.to_arrow().column(name) for name in names}
    view = kept.with_outputs(labels)
    spoke = any(name.startswith("outputs.") for name in kept.names)
    return view.with_answers({MODEL: kept}) if spoke else view


def lacking(judge: Assertion, view: Batch) -> list[str]:
    """Outputs that a library assertion needs but the labels lack, sorted.

    Without this check, a missing output would count as null: :func:`~outrider.assertions.library.required`
    would fire on every label.

    Examples
    --------
    >>> from outrider.assertions.library import low_score
    >>> lacking(low_score("outputs.score"), Batch.from_columns({"outputs.label": [1]}, model="m"))
    ['outputs.score']
    """
    named: set[str] = set()
    for cell in getattr(judge.fn, "__closure__", None) or ():
        value = cell.cell_contents if cell != CellType() else None
        for text in value if isinstance(value, list | tuple | frozenset) else (value,):
            if isinstance(text, str) and text.startswith("outputs."):
                named.add(text)
    return sorted(named - set(view.names))


@dataclass(frozen=True, slots=True)
class Suspicious:
    """Records by evidence against each, most suspicious first.

    Attributes
    ----------
    row
        Row in the checked batch, shape (records,).
    assertions
        Number of assertions that fired on each, shape (records,).
    severity
        Sum over assertions of the flag's severity rank within its assertion, each in (0, 1], shape
        (records,).
    """

    row: NDArray[np.int64]
    assertions: NDArray[np.int64]
    severity: NDArray[np.float64]


def suspicious(flags: Flags) -> Suspicious:
    """Flagged records by number of fired assertions, then by severity.

    Severities of two assertions have no common unit, so each counts by its rank within its assertion.

    Examples
    --------
    >>> from outrider.assertions import Checker
    >>> from outrider.assertions.library import bounds, required
    >>> records = [{"inputs": {"age": 30}}, {"inputs": {"age": -1}}, {"inputs": {}}]
    >>> batch = Batch.from_records(records, model="m")
    >>> checker = Checker([bounds("inputs.age", low=0), required(["inputs.age"])])
    >>> suspicious(checker.check(batch)).row.tolist()
    [1, 2]
    """
    rows = flags.batch.rows
    count = np.zeros(rows, dtype=np.int64)
    total = np.zeros(rows)
    for code in range(len(flags.assertions)):
        own = np.flatnonzero(flags.code == code)
        if not len(own):
            continue
        _, place = np.unique(flags.severity[own], return_inverse=True)
        np.add.at(count, flags.row[own], 1)
        np.add.at(total, flags.row[own], (place + 1.0) / (place.max() + 1.0))
    found = np.flatnonzero(count)
    order = found[np.lexsort((found, -total[found], -count[found]))]
    return Suspicious(order.astype(np.int64), count[order], total[order])
