"""Budgets of live questions, in rows per second and time.

The first is a function of the journal alone, so that a restart asks the same records; the second protects the
worker, and what it refuses is counted as shed.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.monitor.host.client import Offered

HORIZON_S = 5.0
"""Savings are spread over the traffic expected in this time."""
BURST_S = 10.0
"""Most that a budget saves, as time."""
MEMORY_S = 10.0
STEPS_PER_OCTAVE = 8
"""Probabilities under a budget are ``live * 2 ** (-k / 8)``: few classes of weight."""
SHARE = 0.2
SAVED_S = 5.0
MODEL = ""
"""Key of the model's common budget."""


@dataclass(slots=True)
class LiveBudget:
    """Probability of each live test's questions per block.

    About the records of one model. Each budget is a bucket of rows that fills with receive time. A block of
    ``n`` rows may spend ``n / (n + rows expected in HORIZON_S)`` of it in expectation, so in any ``T``
    seconds at most ``rows_per_s * (T + BURST_S)`` rows are expected to be asked.

    Examples
    --------
    >>> budget = LiveBudget({"test_shift": 1.0}, {}, common=50.0)
    >>> for second in range(30):
    ...     asked = budget.advance(second * 1_000_000, rows=1000)
    >>> 0.035 < asked["test_shift"] <= 0.05
    True
    """

    rates: Mapping[str, float]
    own: Mapping[str, float]
    common: float | None = None
    _tokens: dict[str, float] = field(default_factory=dict)
    _rate: float = 0.0
    _at_us: int | None = None

    @classmethod
    def of(cls, offered: Sequence[Offered], common: float | None) -> "LiveBudget":
        tests = [judge for judge in offered if judge.kind == "live_test"]
        own = {test.name: test.rows_per_s for test in tests if test.rows_per_s is not None}
        return cls({test.name: test.rate for test in tests}, own, common)

    @property
    def is_limited(self) -> bool:
        return bool(self.rates) and (self.common is not None or bool(self.own))

    def advance(self, received_us: int, rows: int) -> dict[str, float]:
        """Advance by a block; probability per test, in [0, 1]."""
        if not self.is_limited or not rows:
            return dict(self.rates)
        passed_s = 0.0 if self._at_us is None else max(0.0, (received_us - self._at_us) / 1e6)
        self._at_us = received_us if self._at_us is None else max(self._at_us, received_us)
        self._rate = self._rate * math.exp(-passed_s / MEMORY_S) + rows / MEMORY_S
        # of the saved rows, this share may go to each record of the block
        spread = 1.0 / (rows + HORIZON_S * self._rate)
        asked = dict(self.rates)
        for test, per_s in self.own.items():
            asked[test] = min(asked[test], spread * self._filled(test, per_s, passed_s))
        if self.common is not None and (wanted := sum(asked.values())):
            scale = min(1.0, spread * self._filled(MODEL, self.common, passed_s) / wanted)
            asked = {test: probability * scale for test, probability in asked.items()}
        asked = {test: _rounded(probability, self.rates[test]) for test, probability in asked.items()}
        for test in self.own:
            self._tokens[test] -= asked[test] * rows
        if self.common is not None:
            self._tokens[MODEL] -= sum(asked.values()) * rows
        return asked

    def _filled(self, whose: str, per_s: float, passed_s: float) -> float:
        full = per_s * BURST_S
        self._tokens[whose] = min(full, self._tokens.get(whose, full) + per_s * passed_s)
        return max(0.0, self._tokens[whose])

    def step(self, by_us: int) -> None:
        """Shift times by a step of the clock."""
        self._at_us = None if self._at_us is None else self._at_us + by_us

    def to_dict(self) -> dict[str, Any]:
        return {"tokens": dict(sorted(self._tokens.items())), "rate": self._rate, "at_us": self._at_us}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of :meth:`to_dict`; new budgets begin full."""
        known = {MODEL, *self.own}
        self._tokens = {whose: float(rows) for whose, rows in state["tokens"].items() if whose in known}
        self._rate, self._at_us = float(state["rate"]), state["at_us"]


def _rounded(probability: float, most: float) -> float:
    """Next lower probability on the grid of a test; 0 stays 0."""
    if probability <= 0.0 or probability >= most:
        return min(probability, most)
    steps = math.ceil(STEPS_PER_OCTAVE * math.log2(most / probability) - 1e-9)
    return float(most * 2.0 ** (-steps / STEPS_PER_OCTAVE))


@dataclass(slots=True)
class TimeBudget:
    """Worker's time budget for live tests: ``SHARE`` of it in the long run, ``SAVED_S`` at once."""

    clock: Callable[[], float] = time.monotonic
    _saved_s: float = SAVED_S
    _at_s: float | None = None

    def allows(self) -> bool:
        now = self.clock()
        passed_s = 0.0 if self._at_s is None else now - self._at_s
        self._at_s = now
        self._saved_s = min(SAVED_S, self._saved_s + SHARE * passed_s)
        return self._saved_s > 0.0

    def spend(self, seconds: float) -> None:
        self._saved_s -= seconds
