"""Answers of one system to questions, row by row."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

Fate = Literal["answered", "refused", "late", "failed", "unreadable"]
"""What became of a question: an answer, a status 4xx, none in time, none at all, or one of another form."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of one system to a batch of questions.

    Attributes
    ----------
    outputs
        ``outputs.*``, aligned with the questions; nulls where there is no answer.
    fate
        A :data:`Fate` for each question, shape (rows,).
    why
        Reason of each question without an answer, empty for the others, shape (rows,).
    latency_s
        Time from question to answer, NaN where it was not asked alone, shape (rows,).
    tokens
        Tokens of question and answer as the system counts them, -1 where it does not, shape (rows, 2).
    is_cached
        Answers that a cache gave, which says nothing on noise, shape (rows,).
    is_answered
        Mask of the questions with an answer, shape (rows,).
    """

    outputs: Batch
    fate: NDArray[np.object_]
    why: NDArray[np.object_]
    latency_s: NDArray[np.float64]
    tokens: NDArray[np.int64]
    is_cached: NDArray[np.bool_]
    is_answered: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        # Read a dozen times for each block; the texts are compared once.
        object.__setattr__(self, "is_answered", np.asarray(self.fate == "answered", dtype=np.bool_))

    def take(self, rows: NDArray[np.intp]) -> "Answers":
        """Answers of some questions."""
        if is_all(rows, len(self.fate)):
            return self
        return Answers(
            self.outputs.take(rows),
            self.fate[rows],
            self.why[rows],
            self.latency_s[rows],
            self.tokens[rows],
            self.is_cached[rows],
        )

    def unreadable(self, why: str) -> "Answers":
        """The same, with every answer unreadable for a reason."""
        fate, reasons = self.fate.copy(), self.why.copy()
        fate[self.is_answered], reasons[self.is_answered] = "unreadable", why
        return replace(self, fate=fate, why=reasons)

    @classmethod
    def recorded(cls, questions: Batch) -> "Answers":
        """Answers that stand in the traffic itself."""
        names = [name for name in questions.names if name.startswith("outputs.")]
        is_there = np.zeros(questions.rows, dtype=np.bool_)
        for name in names:
            is_there |= ~questions.is_null(name)
        fate = np.where(is_there, "answered", "failed").astype(object)
        why = np.where(is_there, "", "the record holds no answer of production").astype(object)
        latency, tokens = np.full(questions.rows, np.nan), np.full((questions.rows, 2), -1)
        return cls(questions, fate, why, latency, tokens, np.zeros(questions.rows, dtype=np.bool_))


class Asker(Protocol):
    """One system that may be asked: production or a candidate."""

    name: str
    """As reports call it."""
    borrowed: Counter[str]
    """Answers that another system gave before, byte for byte with their ids, by its name."""

    @property
    def retries(self) -> int:
        """Questions asked a second time at the server's request."""

    def ask(self, questions: Batch, /) -> Answers:
        """Answers to all questions; failures of the system are answers, too."""

    def close(self) -> None:
        """Leave connections and processes."""


def is_all(rows: NDArray[np.intp], count: int) -> bool:
    """Test for the rows 0 to ``count`` in their order.

    Examples
    --------
    >>> is_all(np.arange(3), 3), is_all(np.array([0, 2, 1]), 3), is_all(np.arange(2), 3)
    (True, False, False)
    """
    return len(rows) == count and bool((rows[1:] > rows[:-1]).all())
