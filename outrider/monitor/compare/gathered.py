"""Answers of blocks, gathered in the order of questions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import SchemaMismatch

from .answers import Answers, Fate
from .questions import MODEL

Outputs = Mapping[str, NDArray[Any]]


class GatheredAnswers:
    """Answers to one batch of questions, filled block by block.

    Blocks may come from several threads. A question that nobody answers stays ``failed``.
    """

    def __init__(self, questions: Batch) -> None:
        rows = questions.rows
        self._questions = questions
        self._parts: list[tuple[NDArray[np.intp], Outputs]] = []
        self._fate = np.full(rows, "failed", dtype=object)
        self._why = np.full(rows, "not asked", dtype=object)
        self._latency_s = np.full(rows, np.nan)
        self._is_cached = np.zeros(rows, dtype=np.bool_)

    def answered(
        self,
        rows: Sequence[int] | NDArray[np.intp],
        outputs: Outputs,
        *,
        latency_s: float = float("nan"),
        is_cached: bool = False,
    ) -> None:
        """Take the answers to some questions."""
        at = np.asarray(rows, dtype=np.intp)
        self._parts.append((at, outputs))
        self._fate[at], self._why[at] = "answered", ""
        self._is_cached[at] = is_cached
        if len(at) == 1:
            self._latency_s[at] = latency_s

    def missing(self, rows: Sequence[int], fate: Fate, why: str) -> None:
        """Note why some questions have no answer."""
        at = np.asarray(rows, dtype=np.intp)
        self._fate[at], self._why[at] = fate, why[:300]

    def answers(self) -> Answers:
        """All answers; minority forms are unreadable."""
        columns: dict[str, Any] = {"id": self._questions.arrow("id")}
        for name in dict.fromkeys(name for _, outputs in self._parts for name in outputs):
            columns[f"outputs.{name}"] = self._column(name)
        rows = self._questions.rows
        return Answers(
            Batch.from_columns(columns, model=MODEL, rows=rows),
            self._fate,
            self._why,
            self._latency_s,
            np.full((rows, 2), -1, dtype=np.int64),
            self._is_cached,
        )

    def _column(self, name: str) -> Any:
        """Values of one output for all questions, nulls where there are none."""
        parts = [(at, np.asarray(outputs[name])) for at, outputs in self._parts if name in outputs]
        forms = [(values.dtype.kind in "iufb", values.shape[1:]) for _, values in parts]
        common = max(set(forms), key=forms.count)
        for (at, _), form in zip(parts, forms, strict=True):
            if form != common:
                self.missing(at.tolist(), "unreadable", f"outputs.{name}: values of another form than before")
        taken = [part for part, form in zip(parts, forms, strict=True) if form == common]
        rows = self._questions.rows
        is_full = sum(len(at) for at, _ in taken) == rows
        is_number, shape = common
        if is_number and (is_full or shape):
            kinds = [values.dtype for _, values in taken]
            kind = np.result_type(*kinds) if is_full else np.result_type(*kinds, np.float32)
            whole = np.full((rows, *shape), 0 if is_full else np.nan, dtype=kind)
            for at, values in taken:
                whole[at] = values
            return whole
        listed = np.full(rows, None, dtype=object)
        for at, values in taken:
            listed[at] = values if values.ndim == 1 else _lists(values)
        return _typed(listed)


def _lists(values: NDArray[Any]) -> NDArray[np.object_]:
    """Rows of a table of values, each as a list."""
    found = np.empty(len(values), dtype=object)
    found[:] = values.tolist()
    return found


def _typed(values: NDArray[np.object_]) -> Any:
    """Values as a column: texts where they have no common type."""
    try:
        return pa.array(values, from_pandas=False)
    except (pa.ArrowException, SchemaMismatch):
        return pa.array([None if value is None else str(value) for value in values.tolist()], pa.string())
