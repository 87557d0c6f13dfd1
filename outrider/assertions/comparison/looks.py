"""Snapshots of a difference over time."""

from dataclasses import dataclass
from typing import Any

LOOKS = 400
"""Maximum number of snapshots kept; above it every other one is dropped."""


@dataclass(frozen=True, slots=True)
class Look:
    """Net difference at one point of the stream, with its bounds."""

    records: int
    value: float
    low: float
    high: float


def thin(looks: list[Any]) -> None:
    """Drop every other snapshot of a list that is too long.

    The first and the last stay.

    Examples
    --------
    >>> looks = list(range(LOOKS + 1))
    >>> thin(looks)
    >>> looks[:3], looks[-2:], len(looks)
    ([0, 2, 4], [398, 400], 201)
    """
    if len(looks) > LOOKS:
        del looks[1:-1:2]
