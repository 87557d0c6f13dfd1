"""Answers of one system to a batch of questions, in columns."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests.asking.server import Fate
from outrider.errors import SchemaMismatch

from .questions import MODEL

Outputs = Mapping[str, NDArray[Any]]
NumberKind = Literal["class", "number"]
"""How to read an output that one system returns as 1 and the other as 1.0: as a class or as a score."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of one system; every array has one entry per question."""

    outputs: Batch
    fate: NDArray[np.object_]
    why: NDArray[np.object_]
    latency_s: NDArray[np.float64]
    """NaN without an answer, and for questions sent together in one request."""
    tokens: NDArray[np.int64]
    """Prompt and completion tokens, shape (rows, 2); -1 if the system reports no count."""
    is_cached: NDArray[np.bool_]
    models: frozenset[str] = frozenset()
    """Model names that the responses state."""
    is_answered: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        # Read a dozen times for each block; the texts are compared once.
        object.__setattr__(self, "is_answered", np.asarray(self.fate == "answered", dtype=np.bool_))

    @property
    def is_asked(self) -> NDArray[np.bool_]:
        """Mask of the questions that were sent."""
        return np.asarray(self.fate != "unasked", dtype=np.bool_)

    def take(self, rows: NDArray[np.intp]) -> "Answers":
        if is_all(rows, len(self.fate)):
            return self
        return Answers(
            self.outputs.take(rows),
            self.fate[rows],
            self.why[rows],
            self.latency_s[rows],
            self.tokens[rows],
            self.is_cached[rows],
            self.models,
        )

    def as_kinds(self, kinds: Mapping[str, NumberKind]) -> "Answers":
        """Cast the named outputs: floats to strings for classes, integers to floats for scores."""
        columns: dict[str, Any] = {}
        for name, kind in kinds.items():
            if not self.outputs.has(name):
                continue
            column = self.outputs.arrow(name)
            if kind == "class" and pa.types.is_floating(column.type):
                columns[name] = pc.cast(column, pa.string())
            elif kind == "number" and pa.types.is_integer(column.type):
                columns[name] = pc.cast(column, pa.float64(), safe=False)
        return replace(self, outputs=self.outputs.with_columns(columns)) if columns else self

    def unreadable(self, why: str) -> "Answers":
        fate, reasons = self.fate.copy(), self.why.copy()
        fate[self.is_answered], reasons[self.is_answered] = "unreadable", why
        return replace(self, fate=fate, why=reasons)

    @classmethod
    def recorded(cls, questions: Batch) -> "Answers":
        """Production's answers as recorded in the traffic; a question without one counts as ``failed``."""
        names = [name for name in questions.names if name.startswith("outputs.")]
        is_there = np.zeros(questions.rows, dtype=np.bool_)
        for name in names:
            is_there |= ~questions.is_null(name)
        fate = np.where(is_there, "answered", "failed").astype(object)
        why = np.where(is_there, "", "the record holds no answer of production").astype(object)
        latency, tokens = np.full(questions.rows, np.nan), np.full((questions.rows, 2), -1)
        return cls(questions, fate, why, latency, tokens, np.zeros(questions.rows, dtype=np.bool_))


class Asker(Protocol):
    """Client of production or of a candidate."""

    name: str
    """Name in reports."""
    borrowed: Counter[str]
    """Answers that another system had already given, with the same bytes and response id, by that
    system's name."""

    @property
    def retries(self) -> int:
        """Requests repeated after status 429 or 503."""

    def ask(self, questions: Batch, /) -> Answers:
        """Answer all questions; errors of the system are reported in ``Answers.fate``, not raised."""

    def close(self) -> None: ...


def is_all(rows: NDArray[np.intp], count: int) -> bool:
    """True if ``rows`` is 0, 1, ..., ``count - 1``.

    Examples
    --------
    >>> is_all(np.arange(3), 3), is_all(np.array([0, 2, 1]), 3), is_all(np.arange(2), 3)
    (True, False, False)
    """
    return len(rows) == count and bool((rows[1:] > rows[:-1]).all())


class GatheredAnswers:
    """Answers collected block by block from several threads; unanswered questions stay ``failed``."""

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
        at = np.asarray(rows, dtype=np.intp)
        self._parts.append((at, outputs))
        self._fate[at], self._why[at] = "answered", ""
        self._is_cached[at] = is_cached
        if len(at) == 1:
            self._latency_s[at] = latency_s

    def missing(self, rows: Sequence[int], fate: Fate, why: str) -> None:
        at = np.asarray(rows, dtype=np.intp)
        self._fate[at], self._why[at] = fate, why[:300]

    def answers(self) -> Answers:
        """Merge all blocks; blocks whose dtype or shape is not the most frequent one become
        ``unreadable``."""
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
    """Object array that holds each row as a list."""
    found = np.empty(len(values), dtype=object)
    found[:] = values.tolist()
    return found


def _typed(values: NDArray[np.object_]) -> Any:
    """Arrow array; values without a common type become strings."""
    try:
        return pa.array(values, from_pandas=False)
    except (pa.ArrowException, SchemaMismatch):
        return pa.array([None if value is None else str(value) for value in values.tolist()], pa.string())
