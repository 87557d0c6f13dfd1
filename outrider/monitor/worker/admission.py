"""Admission: sheds load in a fixed order to keep verdicts young (docs/latency.md).

Pure; the worker asks once per unit of a model with an objective.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests.sampling import sample_rows
from outrider.monitor.stream.units import UNIT_ROWS

DRAW = "~admission"
"""Name of the draw, which no live test can have."""
STEPS_PER_OCTAVE = 8
"""Shares are ``2 ** (-k / 8)``: few classes of weight."""
LEAST_SHARE = 1.0 / 1024
UNIT_SHARE = 0.125
"""Largest share of the objective that one unit may take."""
FIRST_ROWS = 32
WINDOWS_PER_PERIOD = 10.0
LEAST_PERIOD_S = 600.0
"""Admitted entities are drawn again this often, and at most once in ten times the longest window."""


class SheddingMeasure(IntEnum):
    """Measures of shedding in order; each includes the earlier ones."""

    NONE = 0
    LIVE_TESTS = 1
    CHALLENGERS = 2
    JUDGES = 3
    SAMPLING = 4
    SKIP = 5


LIMITS = {
    SheddingMeasure.LIVE_TESTS: 0.2,
    SheddingMeasure.CHALLENGERS: 0.25,
    SheddingMeasure.JUDGES: 0.3,
    SheddingMeasure.SAMPLING: 0.4,
}
"""Share of the objective from which each holds; the rest is room for slow units."""


@dataclass(slots=True)
class JudgingPace:
    """Seconds per record of the last ``memory_s`` seconds of work.

    Examples
    --------
    >>> pace = JudgingPace(memory_s=10.0)
    >>> pace.per_row is None
    True
    >>> pace.spent(0.5, rows=50)
    >>> round(pace.per_row, 6)
    0.01
    """

    memory_s: float
    _seconds: float = 0.0
    _rows: float = 0.0

    def spent(self, seconds: float, *, rows: int) -> None:
        fades = math.exp(-max(0.0, seconds) / self.memory_s)
        self._seconds = self._seconds * fades + max(0.0, seconds)
        self._rows = self._rows * fades + rows

    @property
    def per_row(self) -> float | None:
        return self._seconds / self._rows if self._rows > 0.0 else None

    def rows_in(self, seconds: float) -> int:
        if self.per_row is None:
            return FIRST_ROWS
        return max(1, min(UNIT_ROWS, int(seconds / max(self.per_row, 1e-9))))


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    measure: SheddingMeasure = SheddingMeasure.NONE
    share: float = 1.0


@dataclass(slots=True)
class Admission:
    """Hold one model to its objective.

    In lasting overload everything that waits fits into 0.4 of the objective at the present pace: with
    arrivals ``a`` and ``s`` seconds per record, ``share = T / (waiting * s)`` and ``a * share * s = 1``
    give ``waiting / a = T``.
    """

    slo_s: float
    pace: JudgingPace = field(init=False)

    def __post_init__(self) -> None:
        self.pace = JudgingPace(memory_s=2.0 * self.slo_s)

    def decide(self, *, waiting_rows: int, oldest_s: float) -> AdmissionDecision:
        needs_s = waiting_rows * (self.pace.per_row or 0.0)
        pressure = max(needs_s, oldest_s) / self.slo_s
        fits_s = LIMITS[SheddingMeasure.SAMPLING] * self.slo_s
        if needs_s <= fits_s:
            reached = [m for m, limit in LIMITS.items() if pressure >= limit and m < SheddingMeasure.SAMPLING]
            return AdmissionDecision(max(reached, default=SheddingMeasure.NONE))
        share = max(LEAST_SHARE, on_grid(fits_s / needs_s))
        is_lost = oldest_s > self.slo_s * (1.0 - UNIT_SHARE)
        return AdmissionDecision(SheddingMeasure.SKIP if is_lost else SheddingMeasure.SAMPLING, share)


def on_grid(share: float) -> float:
    """Next share of the grid that is not larger.

    Examples
    --------
    >>> on_grid(1.0), on_grid(0.5), round(on_grid(0.49), 4)
    (1.0, 0.5, 0.4585)
    """
    steps = math.ceil(STEPS_PER_OCTAVE * -math.log2(share) - 1e-9)
    return float(2.0 ** (-max(0, steps) / STEPS_PER_OCTAVE))


def period_us(contexts_s: Iterable[float]) -> int:
    """Period of one draw of entities, in µs.

    Given how far back each window of a model reaches.

    Examples
    --------
    >>> period_us([]), period_us([2.0, 600.0])
    (600000000, 6000000000)
    """
    return round(1e6 * max(LEAST_PERIOD_S, WINDOWS_PER_PERIOD * max(contexts_s, default=0.0)))


@dataclass(frozen=True, slots=True)
class SamplingState:
    """State of sampling between units of a stream, committed with the cursor."""

    carried: float = 0.0
    """Weight offered that no admitted record represents yet."""
    since_us: int = 0
    until_us: int = 0
    """``since_us`` and ``until_us``: period of the last sampled unit; zeros before the first."""

    def rotates(self, since_us: int, until_us: int) -> bool:
        """Test for a period that draws other entities; after a period in which all were judged,
        windows hold none of the old sample."""
        is_other = (since_us, until_us) != (self.since_us, self.until_us)
        return self.until_us > 0 and is_other and since_us < self.until_us + (until_us - since_us)

    def factor(self, offered: float, represented: float) -> tuple[float, float]:
        """Weight factor of admitted records, and the weight carried on."""
        whole = self.carried + offered
        return (whole / represented, 0.0) if represented > 0.0 else (1.0, whole)


def admitted(batch: Batch, share: float, *, seed: int, period: int) -> NDArray[np.intp]:
    """Rows to judge at a share: whole entities, other records by id.

    Within a period a smaller share is a subset of a larger one.
    """
    if share >= 1.0:
        return np.arange(batch.rows)
    entity = batch.arrow("entity")
    # an entity is never taken for an id of the same name
    keys = pc.if_else(
        pc.is_valid(entity),
        pc.binary_join_element_wise("e", pc.fill_null(entity, ""), ""),
        pc.binary_join_element_wise("i", batch.arrow("id").cast(pa.string()), ""),
    )
    draw = sample_rows(f"{DRAW}{period}", keys.to_numpy(zero_copy_only=False), rate=share, seed=seed)
    rows: NDArray[np.intp] = np.flatnonzero(draw)
    return rows


def weighted(batch: Batch, factor: float) -> Batch:
    return batch if factor == 1.0 else batch.with_columns({"weight": batch.column("weight") * factor})
