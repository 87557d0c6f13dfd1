"""Pace: best number of rows of a pass, measured."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .faults import Fault, fault_of

MAX_ROWS = 4096
LONGEST_S = 0.25
"""A pass that takes longer holds up records of higher priority for too long, whatever it saves."""
WELL_SPENT = 1.02
"""Times the least seconds per row that fewer rows at once are worth."""
AROUND_S = 5e-4
"""What a pass costs beside the model: what encodes and decodes around it finds the caches cold."""
REPEAT_S = 0.01
REPEATS = 5


@dataclass(frozen=True, slots=True)
class PassCost:
    """Seconds of a pass by its rows, at one width."""

    sizes: NDArray[np.int64]
    seconds: NDArray[np.float64]
    """``sizes`` and ``seconds``: rows of the passes that were measured, rising, and what each took."""
    width: int = 1
    """Positions of each row; 1 where rows have no length."""
    best: int = field(init=False)
    """Fewest rows at nearly the least seconds per row."""

    def __post_init__(self) -> None:
        per_row = self.seconds / self.sizes
        object.__setattr__(self, "best", int(self.sizes[np.argmax(per_row <= WELL_SPENT * per_row.min())]))

    def seconds_of(self, rows: int, width: int) -> float:
        """Seconds of a pass of ``rows`` rows, in proportion to width."""
        within = float(np.interp(rows, self.sizes, self.seconds))
        return within * max(1.0, rows / float(self.sizes[-1])) * width / self.width


def measure(
    timed: Callable[[int], float], *, width: int = 1, max_rows: int = MAX_ROWS, around_s: float = AROUND_S
) -> PassCost | None:
    """Measure a model's pace with passes of growing size.

    One row, two, four, … until more at once is of no use.

    Parameters
    ----------
    timed
        Runs a pass of so many rows and says how many seconds it took. Memory that is not enough ends the
        measurement by a MemoryError.
    around_s
        Seconds that a pass costs beside the model.

    Returns
    -------
    Pace or None
        None where not even one row fits.
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
    """The shortest of a few passes."""
    took = [timed(rows)]
    if took[0] < LONGEST_S:
        took.append(timed(rows))
    while len(took) < REPEATS and sum(took) < REPEAT_S:
        took.append(timed(rows))
    return min(took)
