"""Losses of champion and candidate as the policy declares them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from outrider.assertions import Batch
from outrider.assertions.columns import from_values
from outrider.assertions.losses import BOUNDED, LOSSES, Loss, loss_of_target, losses
from outrider.errors import OutriderError, ValidationRefused

from .checks_process import scored

TITLES: Mapping[str, str] = {
    "error": "error rate",
    "absolute": "mean absolute error",
    "squared": "root mean squared error",
    "token_f1": "1 - token F1",
    "log": "log-loss",
}


class LossFault(OutriderError):  # noqa: N818 - reads as the thing it is
    """Losses that cannot be taken, with the reason."""


@dataclass(frozen=True, slots=True)
class RowLosses:
    """Losses of both by row, as of :func:`~outrider.assertions.losses.losses`."""

    loss: str
    champion: NDArray[np.float64]
    candidate: NDArray[np.float64]

    @property
    def title(self) -> str:
        """Name of the mean."""
        return TITLES.get(self.loss, f"loss by {self.loss}")

    @property
    def is_bounded(self) -> bool:
        """True where losses lie between 0 and 1."""
        return self.loss in BOUNDED


@dataclass(frozen=True, slots=True)
class AnswerScoring:
    """Scoring of answers to one target.

    Attributes
    ----------
    loss
        One of :data:`~outrider.assertions.losses.LOSSES`, ``auto``, or ``file.py:callable`` in ``folder``.
    scores
        Output that holds the probabilities of the classes, for ``log``.
    """

    loss: str = "auto"
    target: str = "label"
    classes: Sequence[int | str] = ()
    scores: str | None = None
    folder: Path = Path()
    deadline_s: float = 60.0

    def of(
        self,
        batch: Batch,
        champion: Mapping[str, Any],
        candidate: Mapping[str, Any],
        *,
        pause: Callable[[], None] = lambda: None,
    ) -> RowLosses:
        """Losses of two models' outputs.

        Raises
        ------
        LossFault
            If an output is missing, or the user's scorer gives no losses.
        """
        labels, output = batch.arrow(f"label.{self.target}"), self.target
        if self.loss == "log":
            output = self.scores or self.target
        said = [_output(one, output, who) for one, who in ((champion, "champion"), (candidate, "candidate"))]
        try:
            if self.loss != "auto" and self.loss not in LOSSES:
                columns = {"label": labels, "champion": said[0], "candidate": said[1]}
                table = pa.table({name: _column(values) for name, values in columns.items()})
                both = scored(self.loss, self.folder, table, deadline_s=self.deadline_s, pause=pause)
                return RowLosses(self.loss, both[0], both[1])
            loss = self._loss(labels, said)
            old, new = (losses(loss, answers, labels, classes=self.classes) for answers in said)
        except (ValidationRefused, ValueError) as error:
            raise LossFault(f"gate.loss = {self.loss!r}: {error}") from error
        return RowLosses(loss, old, new)

    def _loss(self, labels: pa.Array, said: Sequence[Any]) -> Loss:
        if self.loss in LOSSES:
            return self.loss
        kinds = {loss_of_target(labels, answers, self.classes) for answers in said}
        return "absolute" if "absolute" in kinds else "error"


def _output(outputs: Mapping[str, Any], name: str, who: str) -> Any:
    if name not in outputs:
        raise LossFault(f"the {who} has no output {name!r}; it has {', '.join(map(repr, outputs)) or 'none'}")
    return outputs[name]


def _column(values: ArrayLike | pa.Array) -> pa.Array:
    column = from_values(values)
    return pa.array(column.to_pylist()) if isinstance(column, pa.ExtensionArray) else column
