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
    """Priorities of asks; within one, first come first served."""

    LIVE = 0
    TEST = 1
    BACKFILL = 2


@dataclass(frozen=True, slots=True)
class Ask:
    """Records that versions of one trunk group are to answer."""

    number: int
    """Chosen by who asks; answers carry it."""
    model: str
    versions: tuple[str, ...]
    """Versions of ``model``; each answers every record."""
    batch: Batch
    priority: Priority = Priority.LIVE
    again: tuple[int, ...] = ()
    """Rows that every version answers twice, in order; the second time in another batch shape: what differs
    between the two is noise, not the model. These answers carry the name :func:`again_of` the version."""

    @property
    def answers(self) -> tuple[str, ...]:
        """Versions that its answers carry."""
        return (*self.versions, *map(again_of, self.versions)) if self.again else self.versions


AGAIN = "~again:"


def again_of(version: str) -> str:
    """Name of a version's second answers, which no version can have.

    Examples
    --------
    >>> again_of("1")
    '~again:1'
    """
    return f"{AGAIN}{version}"


@dataclass(frozen=True, slots=True)
class Poison:
    """Record that makes the model raise in any company."""

    row: int
    detail: str


LATE = "no answer within"
"""How the failure of a version begins that held up its process beyond the deadline."""
SHOT = "its process ended: signal 9"
"""Reason where the kernel or a person ended a process, which is laid to no version."""
SILENT = "ServerError"
"""How the failure of a model elsewhere begins that gave no answer."""


@dataclass(frozen=True, slots=True)
class AskAnswer:
    """Answer of one version to one ask."""

    number: int
    version: str
    outputs: Outputs | None
    """By field, each with first dimension the records of the ask; rows named in ``poison`` hold what is never
    read. None where nothing could be answered."""
    poison: tuple[Poison, ...] = ()
    failure: str = ""
    """Why there are no outputs; empty where there are."""
    seconds: float = 0.0
    """Time of the passes that answered, by the share of their rows; versions that ran together took it
    all."""
    cut: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """By input: texts that lost tokens to the longest that the model takes, shape (records,), where known."""

    @property
    def is_owed(self) -> bool:
        """True for a missing answer that says nothing of the records."""
        return self.outputs is None and self.failure.startswith((LATE, SHOT, SILENT))


ESSENTIAL = frozenset({"label", "value", "score", "probs", "embedding", "logprob"})
"""Outputs without which a model has said nothing; what else it answers may be unknown for every record."""


def not_finite(outputs: Outputs) -> str:
    """First essential output without finite numbers in any record, or empty.

    Where a model answers none of :data:`ESSENTIAL`, all that it answers is.
    """
    essential = outputs.keys() & ESSENTIAL or outputs.keys()
    for name, values in outputs.items():
        if name not in essential or values.dtype.kind != "f" or not values.size:
            continue
        if not np.isfinite(values.flat[0]) and not np.isfinite(values).any():  # nearly always told by one
            return name
    return ""
