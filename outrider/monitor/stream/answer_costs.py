"""Time per record of versions' answers, as counters that add up."""

import math
from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from outrider.dataops.ledger.counters import counts_by_slot

CLASSES_PER_OCTAVE = 4
"""Times per record are kept to a factor of 2 ** (1 / 4), an error of 9 % at most."""
_TIME, _ROWS, _CLASS = "answer_ns@", "answered@", "answer_class:"


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """Microseconds per record, quantiles over records at their units' means."""

    answered: int
    mean_us: float
    p50_us: float
    p99_us: float


def note_cost(counts: Tally[str], version: str, seconds: float, records: int) -> None:
    """Count the cost of a version's answers to a unit.

    Examples
    --------
    >>> counts: Tally[str] = Tally()
    >>> note_cost(counts, "7", 0.004, 100)
    >>> dict(counts)
    {'answer_ns@7': 4000000, 'answered@7': 100, 'answer_class:21@7': 100}
    """
    if not records or seconds <= 0:
        return
    counts[f"{_TIME}{version}"] += int(seconds * 1e9)
    counts[f"{_ROWS}{version}"] += records
    us = max(1.0, seconds * 1e6 / records)
    counts[f"{_CLASS}{round(CLASSES_PER_OCTAVE * math.log2(us))}@{version}"] += records


def read_costs(connection: Connection, model: str) -> dict[str, AnswerCost]:
    found: dict[str, Tally[str]] = {}
    for counts in counts_by_slot(connection, model, prefix="answer").values():
        for name, value in counts.items():
            what, mark, version = name.partition("@")
            if mark:
                found.setdefault(version, Tally())[f"{what}@"] += value
    return {version: _cost(counts) for version, counts in found.items() if counts[_TIME]}


def _cost(counts: Mapping[str, int]) -> AnswerCost:
    classes = sorted(
        (int(name.removeprefix(_CLASS).rstrip("@")), value)
        for name, value in counts.items()
        if name.startswith(_CLASS)
    )
    total = sum(value for _, value in classes)

    def quantile(rank: float) -> float:
        below = 0
        for one, value in classes:
            below += value
            if below >= rank * total:
                return float(2 ** (one / CLASSES_PER_OCTAVE))
        return math.nan

    answered = counts[_ROWS]
    return AnswerCost(answered, counts[_TIME] / answered / 1000, quantile(0.5), quantile(0.99))
