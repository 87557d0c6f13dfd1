"""Losses of champion and candidate as the policy declares them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import from_values, is_tensor
from outrider.assertions.comparison.losses import (
    BOUNDED,
    LOSSES,
    Loss,
    is_known,
    loss_of_target,
    losses,
    probabilities,
)
from outrider.assertions.comparison.matching import class_numbers
from outrider.assertions.statistics.loss_bounds import Excess, excess, relative_excess
from outrider.assertions.statistics.set_figures import (
    SET_FIGURES,
    SetFigure,
    average_precision,
    macro_f1,
    set_excess,
)
from outrider.errors import OutriderError, ValidationRefused

from .checks_process import scored

Rows: TypeAlias = NDArray[np.bool_]
Times: TypeAlias = NDArray[np.datetime64]
TITLES: Mapping[str, str] = {
    "error": "error rate",
    "absolute": "mean absolute error",
    "squared": "root mean squared error",
    "token_f1": "1 - token F1",
    "log": "log-loss",
    "macro_f1": "1 - macro-F1",
    "average_precision": "1 - average precision",
}


SIDES = ("champion", "candidate")


class LossFault(OutriderError):  # noqa: N818 - reads as the thing it is
    ...


@dataclass(frozen=True, slots=True)
class RowLosses:
    loss: str
    champion: NDArray[np.float64]
    candidate: NDArray[np.float64]

    @property
    def title(self) -> str:
        return TITLES.get(self.loss, f"loss by {self.loss}")

    @property
    def is_bounded(self) -> bool:
        return self.loss in BOUNDED

    @property
    def known(self) -> Rows:
        return np.isfinite(self.champion)

    @property
    def unanswered(self) -> int:
        """Known rows where the candidate's answer cannot be judged."""
        return int(np.isinf(self.candidate[self.known]).sum())

    def champion_loss(self, rows: Rows) -> float:
        mean = float(self.champion[rows].mean()) if rows.any() else 0.0
        return math.sqrt(mean) if self.loss == "squared" else mean

    def excess(self, rows: Rows, names: NDArray[Any], times: Times, error: float) -> Excess:
        bound = excess if self.is_bounded else relative_excess
        losses = self.champion[rows], self.candidate[rows]
        found = bound(*losses, entities=names[rows], times=times[rows], error=error)
        return _of_roots(found) if self.loss == "squared" else found


@dataclass(frozen=True, slots=True)
class SetAnswers:
    loss: SetFigure
    champion: NDArray[Any]
    candidate: NDArray[Any]
    """Class numbers, or scores of the classes, as of `statistics.set_figures.set_excess`."""
    labels: NDArray[np.intp]
    classes: int
    is_bounded: bool = True

    @property
    def title(self) -> str:
        return TITLES[self.loss]

    @property
    def known(self) -> Rows:
        return (self.labels >= 0) & _is_finite(self.champion)

    @property
    def unanswered(self) -> int:
        return int((~_is_finite(self.candidate[self.known])).sum())

    def champion_loss(self, rows: Rows) -> float:
        said, labels = self.champion[rows], self.labels[rows]
        if self.loss == "macro_f1":
            return 1.0 - macro_f1(said, labels, self.classes)
        return 1.0 - average_precision(said, labels)

    def excess(self, rows: Rows, names: NDArray[Any], times: Times, error: float) -> Excess:
        return set_excess(
            self.loss,
            self.champion[rows],
            self.candidate[rows],
            self.labels[rows],
            classes=self.classes,
            entities=names[rows],
            times=times[rows],
            error=error,
        )


@dataclass(frozen=True, slots=True)
class AnswerScoring:
    """Scoring of answers to one target.

    ``loss`` is one of `losses.LOSSES` or `set_figures.SET_FIGURES`, ``auto``, or ``file.py:callable`` in
    ``folder``; ``scores`` names the output with class probabilities.
    """

    loss: str = "auto"
    target: str = "label"
    classes: Sequence[int | str] = ()
    scores: str | None = None
    folder: Path = Path()
    deadline_s: float = 60.0
    is_number: bool | None = None

    def of(
        self,
        batch: Batch,
        champion: Mapping[str, Any],
        candidate: Mapping[str, Any],
        *,
        pause: Callable[[], None] = lambda: None,
    ) -> RowLosses | SetAnswers:
        """Losses of two models' outputs; LossFault where an output is missing or the user's scorer
        gives none."""
        if not batch.has(f"label.{self.target}"):
            there = [name for name in batch.to_arrow().schema.names if name.startswith("label.")]
            raise LossFault(
                f"the rows have no label.{self.target}; they have {', '.join(there) or 'no label'}"
            )
        labels, output = batch.arrow(f"label.{self.target}"), self.target
        if self.loss in ("log", "average_precision"):
            output = self.scores or self.target
        said = [
            _output(one, output, who, batch.rows)
            for one, who in zip((champion, candidate), SIDES, strict=True)
        ]
        try:
            if self.loss not in ("auto", *LOSSES, *SET_FIGURES):
                columns = {"label": labels, "champion": said[0], "candidate": said[1]}
                table = pa.table({name: _column(values) for name, values in columns.items()})
                return RowLosses(self.loss, *self._scored(table, is_known(labels), pause))
            if self.loss in SET_FIGURES:
                return self._as_set(self.loss, labels, said)
            loss = self._loss(labels, said[0])
            old, new = (losses(loss, answers, labels, classes=self.classes) for answers in said)
        except (ValidationRefused, ValueError) as error:
            raise LossFault(f"gate.loss = {self.loss!r}: {error}") from error
        return RowLosses(loss, old, new)

    def _scored(
        self, table: pa.Table, known: Rows, pause: Callable[[], None]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        old, new = np.full((2, len(known)), np.nan)
        if known.any():
            labelled = table.filter(pa.array(known))
            old[known], new[known] = scored(
                self.loss, self.folder, labelled, deadline_s=self.deadline_s, pause=pause
            )
        return old, new

    def _as_set(self, figure: SetFigure, labels: pa.Array, said: Sequence[Any]) -> SetAnswers:
        if figure == "average_precision" and not self.classes:
            raise LossFault(f"gate.loss = {figure!r}: declare classes, in the order of the scores")
        if pa.types.is_nested(labels.type) or is_tensor(labels.type):
            raise LossFault(f"gate.loss = {figure!r}: labels that are classes expected, got {labels.type}")
        named = {value for value in labels.to_pylist() if value is not None}
        classes = self.classes or sorted(named, key=str)
        truth = class_numbers(labels, classes)
        read: Callable[[Any, Any], NDArray[Any]] = class_numbers if figure == "macro_f1" else probabilities
        old, new = (read(answers, classes) for answers in said)
        return SetAnswers(figure, old, new, truth, len(classes))

    def _loss(self, labels: pa.Array, answers: Any) -> Loss:
        """Loss that the policy names, or that of labels and champion: no candidate chooses its own."""
        if self.loss in LOSSES:
            return self.loss
        return loss_of_target(labels, answers, self.classes, is_number=self.is_number)


def _is_finite(answers: NDArray[Any]) -> Rows:
    return np.asarray(np.isfinite(answers).all(axis=tuple(range(1, answers.ndim))))


def _of_roots(found: Excess) -> Excess:
    value, low, high = (math.sqrt(1.0 + share) - 1.0 for share in (found.value, found.low, found.high))
    return replace(found, value=value, low=low, high=high, variance=found.variance / 4)


def _output(outputs: Mapping[str, Any], name: str, who: str, rows: int) -> Any:
    if name not in outputs:
        raise LossFault(f"the {who} has no output {name!r}; it has {', '.join(map(repr, outputs)) or 'none'}")
    if len(outputs[name]) != rows:
        raise LossFault(f"the {who} gave {len(outputs[name])} answers {name!r} to {rows} rows")
    return outputs[name]


def _column(values: ArrayLike | pa.Array) -> pa.Array:
    column = from_values(values)
    return pa.array(column.to_pylist()) if isinstance(column, pa.ExtensionArray) else column
