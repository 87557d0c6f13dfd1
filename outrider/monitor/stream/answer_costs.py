"""Time per record of slots' answers, as counters that add up."""

import math
from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from outrider.dataops.ledger.counters import counts_by_slot

CLASSES_PER_OCTAVE = 4
"""Times per record are noted to a factor of 2 ** (1 / 4), by 9 % at most."""
_CLASS = "answer_class:"


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """Microseconds per record, quantiles over records at their units' means."""

    answered: int
    mean_us: float
    p50_us: float
    p99_us: float


def note_cost(counts: Tally[str], seconds: float, records: int) -> None:
    """Count the cost of the answers to a unit.

    Examples
    --------
    >>> counts: Tally[str] = Tally()
    >>> note_cost(counts, 0.004, 100)
    >>> dict(counts)
    {'answer_ns': 4000000, 'answered': 100, 'answer_class:21': 100}
    """
    if not records or seconds <= 0:
        return
    counts["answer_ns"] += int(seconds * 1e9)
    counts["answered"] += records
    us = max(1.0, seconds * 1e6 / records)
    counts[f"{_CLASS}{round(CLASSES_PER_OCTAVE * math.log2(us))}"] += records


def read_costs(connection: Connection, model: str) -> dict[str, AnswerCost]:
    """Cost of answers by a model's slots, since each began."""
    slots = counts_by_slot(connection, model, prefix="answer")
    return {slot: _cost(counts) for slot, counts in slots.items() if counts.get("answer_ns")}


def _cost(counts: Mapping[str, int]) -> AnswerCost:
    classes = sorted(
        (int(name.removeprefix(_CLASS)), value) for name, value in counts.items() if name.startswith(_CLASS)
    )
    total = sum(value for _, value in classes)

    def quantile(rank: float) -> float:
        below = 0
        for one, value in classes:
            below += value
            if below >= rank * total:
                return float(2 ** (one / CLASSES_PER_OCTAVE))
        return math.nan

    answered = counts["answered"]
    return AnswerCost(answered, counts["answer_ns"] / answered / 1000, quantile(0.5), quantile(0.99))
