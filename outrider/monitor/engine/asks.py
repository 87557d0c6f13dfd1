"""Asks to the engine and its answers: blocks in, blocks out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

Outputs = Mapping[str, NDArray[Any]]
Name = tuple[str, str]
"""(model, version)."""


class Priority(IntEnum):
    LIVE = 0
    TEST = 1
    BACKFILL = 2


@dataclass(frozen=True, slots=True)
class Ask:
    """Records that versions of one trunk group are to answer."""

    number: int
    model: str
    versions: tuple[str, ...]
    """Versions of ``model``; each answers every record."""
    batch: Batch
    priority: Priority = Priority.LIVE
    again: tuple[int, ...] = ()
    """Rows that every version answers twice, in order, the second time in another batch shape: a
    difference is noise. These answers carry the name :func:`again_of`."""

    @property
    def answers(self) -> tuple[str, ...]:
        return (*self.versions, *map(again_of, self.versions)) if self.again else self.versions


AGAIN = "~again:"


def again_of(version: str) -> str:
    """Name of a version's second answers, which no version can have."""
    return f"{AGAIN}{version}"


@dataclass(frozen=True, slots=True)
class Poison:
    """Record that makes the model raise in any batch."""

    row: int
    detail: str


LATE = "no answer within"
"""Begin of the failure of a version that held up its process beyond the deadline."""
SHOT = "its process ended: signal 9"
"""Reason where the kernel or a person ended a process; no version is blamed."""
SILENT = "ServerError"
"""Begin of the failure of a remote model that gave no answer."""


@dataclass(frozen=True, slots=True)
class AskAnswer:
    number: int
    version: str
    outputs: Outputs | None
    """By field, first dimension the records of the ask; rows in ``poison`` hold values never read.

    None where nothing could be answered.
    """
    poison: tuple[Poison, ...] = ()
    failure: str = ""
    seconds: float = 0.0
    """Time of the passes that answered, by share of rows; versions that ran together are charged all
    of it."""
    cut: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """By input, texts that lost tokens to the model's longest input, shape (records,)."""

    @property
    def is_owed(self) -> bool:
        """True for a missing answer that says nothing of the records."""
        return self.outputs is None and self.failure.startswith((LATE, SHOT, SILENT))


ESSENTIAL = frozenset({"label", "value", "score", "probs", "embedding", "logprob"})
"""Outputs without which a model has said nothing; what else it answers may be unknown for every record."""


def not_finite(outputs: Outputs) -> str:
    """First essential output without finite numbers in any record, or empty; without :data:`ESSENTIAL`
    outputs, all count."""
    essential = outputs.keys() & ESSENTIAL or outputs.keys()
    for name, values in outputs.items():
        if name not in essential or values.dtype.kind != "f" or not values.size:
            continue
        if not np.isfinite(values.flat[0]) and not np.isfinite(values).any():  # nearly always told by one
            return name
    return ""
