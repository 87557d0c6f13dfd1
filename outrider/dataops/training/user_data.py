"""Arguments of a user's ``fine_tune``: the champion, and the rows to learn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Predictor
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.class_outputs import classes_array

from .learned_rows import LearnedRows, balanced_weights, named_weights
from .options import TrainingOptions

if TYPE_CHECKING:
    import pandas as pd

INPUTS = "inputs."


@dataclass(frozen=True, slots=True)
class Champion:
    """Version in production, as ``fine_tune`` is given one."""

    id: str
    """Such as ``churn@3``."""
    folder: Path | None
    """Files that an earlier ``fine_tune`` returned, ``model.onnx`` of an ONNX model; None for others."""
    _load: Callable[[], Predictor]

    def predict(self, x: "pd.DataFrame") -> Mapping[str, NDArray[Any]]:
        """Answers by field, such as ``label`` and ``probs``, to rows of inputs."""
        return self._load()(Batch.from_pandas(x, model=self.id, inputs=list(x.columns)))


class TrainingRows:
    """Labelled rows, as ``fine_tune`` is given them: checked, weighted, fresh ones first.

    The frames are made when they are first asked for; ``fresh`` and ``replay`` are mapped files, to be read
    in pieces where they are too large for memory.

    Attributes
    ----------
    fresh, replay
        New rows, and old ones that are rehearsed; None where there are none.
    weight : shape (rows,)
        Weight of each row; all old ones together weigh ``replay_ratio`` times the fresh ones at most.
    target, classes
        Label field that is learned, and its values.
    """

    def __init__(
        self,
        fresh: LearnedRows | None,
        replay: LearnedRows | None,
        *,
        inputs: Sequence[str],
        target: str,
        classes: Sequence[int | str],
        options: TrainingOptions,
    ) -> None:
        self._parts = [part for part in (fresh, replay) if part is not None]
        self.fresh: MappedRows | None = None if fresh is None else fresh.rows
        self.replay: MappedRows | None = None if replay is None else replay.rows
        self.target, self.classes = target, tuple(classes)
        self.weight = _weights(fresh, replay, self.classes, options)
        self._inputs = tuple(name.removeprefix(INPUTS) for name in inputs)

    def __len__(self) -> int:
        return len(self.weight)

    @cached_property
    def x(self) -> "pd.DataFrame":
        """Inputs of all rows under their own names."""
        frame = self._frame
        names = self._inputs or [n.removeprefix(INPUTS) for n in frame.columns if n.startswith(INPUTS)]
        found = frame[[f"{INPUTS}{name}" for name in names]]
        return found.set_axis(list(names), axis=1)

    @cached_property
    def y(self) -> "pd.Series[Any]":
        """Label of each row, in the type of the classes."""
        import pandas as pd

        if not self.classes:
            return self._frame[f"label.{self.target}"].rename(self.target)
        numbers = np.concatenate([part.classes for part in self._parts if part.classes is not None])
        return pd.Series(classes_array(self.classes)[numbers], name=self.target)

    @cached_property
    def _frame(self) -> "pd.DataFrame":
        import pandas as pd

        return pd.concat([part.rows.to_pandas() for part in self._parts], ignore_index=True)


def _weights(
    fresh: LearnedRows | None,
    replay: LearnedRows | None,
    classes: Sequence[int | str],
    options: TrainingOptions,
) -> NDArray[np.float64]:
    """Weight of each row: of its class, slice and label, and of old ones by their ratio."""
    parts = [part for part in (fresh, replay) if part is not None]
    weights = [
        np.ones(len(part.rows)) if part.weights is None else part.weights.astype(np.float64) for part in parts
    ]
    if fresh is not None and replay is not None:
        weights[1] *= min(1.0, options.replay_ratio * len(fresh.rows) / len(replay.rows))
    found = np.concatenate(weights)
    if not options.class_weights or not classes:
        return found
    numbers = np.concatenate([part.classes for part in parts if part.classes is not None])
    if options.class_weights == "balanced":
        sums = np.bincount(numbers, found, minlength=len(classes)).astype(np.float64)
        by_class = balanced_weights(sums)
    else:
        by_class = named_weights(options.class_weights, classes)
    return np.asarray(found * by_class[numbers])
