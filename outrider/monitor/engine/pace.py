"""Pace: best number of rows of a pass, measured."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .faults import Fault, fault_of

MAX_ROWS = 4096
LONGEST_S = 0.25
"""Longest pass: a longer one would hold up records of higher priority."""
WELL_SPENT = 1.02
"""Multiple of the least seconds per row that smaller batches are worth."""
AROUND_S = 5e-4
"""Cost of a pass outside the model: encoding and decoding find cold caches."""
REPEAT_S = 0.01
REPEATS = 5


@dataclass(frozen=True, slots=True)
class PassCost:
    sizes: NDArray[np.int64]
    seconds: NDArray[np.float64]
    width: int = 1
    best: int = field(init=False)
    """Fewest rows at nearly the least seconds per row."""

    def __post_init__(self) -> None:
        per_row = self.seconds / self.sizes
        object.__setattr__(self, "best", int(self.sizes[np.argmax(per_row <= WELL_SPENT * per_row.min())]))

    def seconds_of(self, rows: int, width: int) -> float:
        within = float(np.interp(rows, self.sizes, self.seconds))
        return within * max(1.0, rows / float(self.sizes[-1])) * width / self.width


def measure(
    timed: Callable[[int], float], *, width: int = 1, max_rows: int = MAX_ROWS, around_s: float = AROUND_S
) -> PassCost | None:
    """Measure a model's pace with passes of growing size: one row, two, four, … until more is of no use.

    None where not even one row fits; a MemoryError of ``timed`` ends the measurement.
    """
    with suppress(MemoryError):
        timed(1)  # cold: code is imported and traced, kernels are chosen
    sizes: list[int] = []
    seconds: list[float] = []
    rows = 1
    while rows <= max_rows:
        try:
            took = around_s + _least(timed, rows)
        except Exception as error:
            if fault_of(error) is not Fault.MEMORY:
                raise
            break
        sizes.append(rows)
        seconds.append(took)
        per_row = [s / n for s, n in zip(seconds, sizes, strict=True)]
        if took > LONGEST_S or int(np.argmin(per_row)) < len(per_row) - 3:
            break
        rows *= 2
    return PassCost(np.array(sizes), np.array(seconds), width) if sizes else None


def _least(timed: Callable[[int], float], rows: int) -> float:
    took = [timed(rows)]
    if took[0] < LONGEST_S:
        took.append(timed(rows))
    while len(took) < REPEATS and sum(took) < REPEAT_S:
        took.append(timed(rows))
    return min(took)
