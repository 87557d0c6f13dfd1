"""State of a policy: fire counts and labels of earlier rounds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class Round:
    """Round of labelling.

    Attributes
    ----------
    records
        Number of judged records.
    fires
        Number of records that each assertion fired on.
    wrong, right
        Number of labels that show the model wrong (right), per assertion that fired and, last, in total.
    """

    records: int
    fires: tuple[int, ...]
    wrong: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SelectionState:
    """State of :func:`~outrider.assertions.select` between rounds; immutable, saved as JSON.

    Examples
    --------
    >>> state = SelectionState().observe([[0.5, 0.0], [0.0, 0.0]])  # the model of this round, two assertions
    >>> state = state.bought([[0.5, 0.0]], wrong=[True])  # the label of the first record
    >>> state.rounds[-1]
    Round(records=2, fires=(1, 0), wrong=(1, 0, 1), right=(0, 0, 0))
    >>> SelectionState.from_json(state.to_json()) == state
    True
    """

    rounds: tuple[Round, ...] = ()

    def observe(self, severities: ArrayLike) -> Self:
        """State with the fires of a new round.

        Call it once the assertions have judged the model's answers.

        Parameters
        ----------
        severities
            Shape (records, assertions), the same assertions in every round.
        """
        fired = np.asarray(severities) > 0
        if fired.ndim != 2:
            raise ValueError(f"severities must have shape (records, assertions), got {fired.shape}")
        return self.count(len(fired), fired.sum(axis=0).tolist())

    def count(self, records: int, fires: Sequence[int]) -> Self:
        """State with the fires of a new round, from counts."""
        if self.rounds and len(self.rounds[-1].fires) != len(fires):
            raise ValueError(
                f"the state knows {len(self.rounds[-1].fires)} assertions, got {len(fires)}: "
                "keep a column for each, with zeros where one is gone"
            )
        nothing = (0,) * (len(fires) + 1)
        return type(self)((*self.rounds, Round(int(records), tuple(map(int, fires)), nothing, nothing)))

    def bought(self, severities: ArrayLike, wrong: ArrayLike) -> Self:
        """State with labels selected in this round.

        Parameters
        ----------
        severities
            Severities of the labelled records, shape (labels, assertions).
        wrong
            Whether the model judged by the assertions was wrong there, shape (labels,).
        """
        if not self.rounds:
            raise ValueError("observe() the round before its labels")
        wrong = np.asarray(wrong, dtype=np.bool_)
        fired = np.asarray(severities).reshape(len(wrong), len(self.rounds[-1].fires)) > 0
        fired = np.column_stack([fired, np.ones(len(wrong), dtype=np.bool_)])
        now = self.rounds[-1]
        more = Round(
            now.records,
            now.fires,
            tuple((np.array(now.wrong) + fired[wrong].sum(axis=0)).tolist()),
            tuple((np.array(now.right) + fired[~wrong].sum(axis=0)).tolist()),
        )
        return type(self)((*self.rounds[:-1], more))

    def labels(self, assertions: int, *, memory: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weighted wrong and right labels per assertion and, last, in total.

        Parameters
        ----------
        memory
            Weight of a label one round later, in [0, 1]: the model has been trained since.
        """
        wrong, right = np.zeros(assertions + 1), np.zeros(assertions + 1)
        for past in self.rounds:
            wrong = memory * wrong + past.wrong
            right = memory * right + past.right
        return wrong, right

    def to_json(self) -> str:
        """JSON text for :meth:`from_json`."""
        return json.dumps(
            {"rounds": [[r.records, list(r.fires), list(r.wrong), list(r.right)] for r in self.rounds]}
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of :meth:`to_json`."""
        rounds = json.loads(text)["rounds"]
        return cls(tuple(Round(n, tuple(fires), tuple(w), tuple(r)) for n, fires, w, r in rounds))
