"""Clock steps: receipt times around one are of different clocks.

A step is a row of the journal (kind ``step``), so that whoever reads it, live or in a replay, meets it at the
same place. What is older or younger is told on the clock of today: `present_us`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

HOUR_US = 3_600_000_000
STEP_US = 60_000_000
"""The wall clock may run away from the monotonic one by so much between two looks at them."""
STEADY_S = 3600.0
"""How long a clock must have run without a step before anything is deleted for its age."""


@dataclass(frozen=True, slots=True)
class Step:
    """A border in the journal.

    Attributes
    ----------
    seq
        Its row: what lies before was received by the clock as it was.
    by_us
        How far the clock was set, forward if positive.
    received_us
        What the clock said behind it.
    """

    seq: int
    by_us: int
    received_us: int


def shift_us(steps: Sequence[Step], seq: int) -> int:
    """Shift of the clock since block ``seq`` was received, in µs."""
    return sum(step.by_us for step in steps if step.seq > seq)


def present_us(steps: Sequence[Step], seq: int, received_us: int) -> int:
    """Receive time of block ``seq`` by today's clock.

    Examples
    --------
    >>> hour = 3_600_000_000
    >>> steps = [Step(5, hour, 9 * hour), Step(7, -hour, 8 * hour)]
    >>> [present_us(steps, seq, 8 * hour) // hour for seq in (4, 6, 8)]
    [8, 7, 8]
    """
    return received_us + shift_us(steps, seq)


def newest_before(steps: Sequence[Step], at: int) -> Step | None:
    """Last border up to block ``at``."""
    return next((step for step in reversed(steps) if step.seq <= at), None)
