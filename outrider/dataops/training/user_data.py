"""Arguments of a user's ``fine_tune``: the champion, and the rows to learn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Predictor
from outrider.assertions.matching import class_numbers
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.class_outputs import classes_array
from outrider.errors import ValidationRefused, nearest

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
    """Labelled rows, as ``fine_tune`` is given them.

    The frames are made when they are first asked for; ``fresh`` and ``replay`` are mapped files, to be read
    in pieces where they are too large for memory.

    Attributes
    ----------
    fresh, replay
        New rows, and old ones that are rehearsed; None where there are none.
    """

    def __init__(
        self,
        fresh: MappedRows | None,
        replay: MappedRows | None,
        *,
        inputs: Sequence[str],
        target: str,
        classes: Sequence[int | str],
        replay_ratio: float,
    ) -> None:
        self.fresh, self.replay = fresh, replay
        self.target, self.classes = target, tuple(classes)
        self._inputs, self._ratio = tuple(name.removeprefix(INPUTS) for name in inputs), replay_ratio

    def __len__(self) -> int:
        return sum(len(part) for part in (self.fresh, self.replay) if part is not None)

    @cached_property
    def x(self) -> "pd.DataFrame":
        """Inputs of all rows under their own names, fresh rows first."""
        frame = self._frame
        names = self._inputs or [n.removeprefix(INPUTS) for n in frame.columns if n.startswith(INPUTS)]
        found = frame[[f"{INPUTS}{name}" for name in names]]
        return found.set_axis(list(names), axis=1)

    @cached_property
    def y(self) -> "pd.Series[Any]":
        """Label of each row, in the type of the classes.

        Raises
        ------
        ValidationRefused
            If a label is not among the classes; with counts.
        """
        import pandas as pd

        column = f"label.{self.target}"
        if column not in self._frame:
            raise ValidationRefused(f"the rows have no column {column}{nearest(column, self._frame.columns)}")
        found = self._frame[column].rename(self.target)
        if not self.classes:
            return found
        numbers = class_numbers(found.to_numpy(), self.classes)
        if (bad := np.flatnonzero(numbers < 0)).size:
            raise ValidationRefused(
                f"record {self._frame['id'].iloc[bad[0]]!r}: {column}: one of the classes "
                f"{', '.join(map(repr, self.classes))} expected, got {found.iloc[bad[0]]!r:.80} "
                f"({len(bad)} of {len(found)} rows so)"
            )
        return pd.Series(classes_array(self.classes)[numbers], name=self.target)

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Weight of each row, 1 of a fresh one.

        All old ones together weigh ``replay_ratio`` times the fresh, at most 1 each.
        """
        fresh, old = (0 if part is None else len(part) for part in (self.fresh, self.replay))
        each = min(1.0, self._ratio * fresh / old) if fresh and old else 1.0
        return np.concatenate([np.ones(fresh), np.full(old, each)])

    @cached_property
    def _frame(self) -> "pd.DataFrame":
        import pandas as pd

        parts = [part.to_pandas() for part in (self.fresh, self.replay) if part is not None]
        return pd.concat(parts, ignore_index=True)
