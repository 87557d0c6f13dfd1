"""Assertions of OMG's public package ``model-assertions`` 0.0.3, columnar.

They flag the same records.

Its per-row assertion is ``@assertion(per_record=True)``, or a function of the batch; the two here take full
column names, judge every batch by itself, and propose no correction.

References
----------
Kang et al., "Model Assertions for Monitoring and Improving ML Models", MLSys 2020, §4.1.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Assertion, Batch, assertion
from outrider.assertions.batch.columns import entity_codes

Bools = NDArray[np.bool_]


def identifier_consistency(identifier: str, attribute: str) -> Assertion:
    """First record of each of an identifier's several values.

    An identifier should have one value.

    Records without an identifier, or without a value, say nothing (OMG takes every NaN for another value).

    Examples
    --------
    >>> cars = {"inputs.car": [7, 7, 8], "outputs.label": ["van", "truck", "van"]}
    >>> same = identifier_consistency("inputs.car", "outputs.label")
    >>> same.severities(Batch.from_columns(cars, model="m"))
    array([1., 1., 0.])
    """
    judge = IdentifierConsistency(identifier, attribute)
    description = f"{identifier} has more than one {attribute}."
    return assertion(name=f"identifier_consistency_{attribute}", description=description)(judge)


def time_consistency(
    identifier: str, timestamp: str, *, window: float = 3, allowed_transitions: int = 1
) -> Assertion:
    """Identifier gone and back within ``window``.

    Fires where the times of an identifier miss a step of 1.

    Both ends of the shortest stretch with more than ``allowed_transitions`` (a gap is two) are flagged.
    Records may stand in any order (OMG names others than it means unless they are sorted by time).

    Examples
    --------
    >>> seen = {"inputs.car": [7, 7, 7], "inputs.frame": [1, 3, 4]}
    >>> steady = time_consistency("inputs.car", "inputs.frame", window=3)
    >>> steady.severities(Batch.from_columns(seen, model="m"))
    array([1., 1., 0.])
    """
    judge = TimeConsistency(identifier, timestamp, window, allowed_transitions)
    description = f"{identifier} comes and goes within {window:g} of {timestamp}."
    return assertion(name=f"time_consistency_{identifier}", description=description)(judge)


@dataclass(frozen=True, slots=True)
class IdentifierConsistency:
    """Judge of :func:`identifier_consistency`."""

    identifier: str
    attribute: str

    def __call__(self, batch: Batch) -> Bools:
        """Which records are the first with one of several values."""
        fired = np.zeros(batch.rows, dtype=np.bool_)
        own, _ = entity_codes(batch.arrow(self.identifier))
        value, values = entity_codes(batch.arrow(self.attribute))
        told = np.flatnonzero((own >= 0) & (value >= 0))
        pair, first = np.unique(own[told] * max(len(values), 1) + value[told], return_index=True)
        several = np.bincount(pair // max(len(values), 1), minlength=1) > 1
        fired[told[first]] = several[pair // max(len(values), 1)]
        return fired


@dataclass(frozen=True, slots=True)
class TimeConsistency:
    """Judge of :func:`time_consistency`."""

    identifier: str
    timestamp: str
    window: float
    allowed_transitions: int

    def __call__(self, batch: Batch) -> Bools:
        """Which records begin or end a stretch with too many transitions."""
        fired = np.zeros(batch.rows, dtype=np.bool_)
        own, _ = entity_codes(batch.arrow(self.identifier))
        told = np.flatnonzero((own >= 0) & ~batch.is_null(self.timestamp))
        time = batch.arrow(self.timestamp).take(pa.array(told)).to_numpy(zero_copy_only=False)
        order = np.lexsort((time, own[told]))
        key, time, place = own[told][order], time[order], told[order]
        follows = np.flatnonzero(key[1:] == key[:-1]) + 1
        breaks = follows[time[follows] != time[follows - 1] + 1]
        rows = np.arange(len(key))
        # The break with which the count first passes what is allowed; each is two transitions.
        needed = self.allowed_transitions // 2 + 1
        ends = rows + 1 if needed < 1 else _nth_after(breaks, rows, needed, len(rows))
        starts = np.flatnonzero(ends < len(rows))
        ends = ends[starts]
        found = (key[ends] == key[starts]) & (time[ends] - time[starts] < self.window)
        fired[place[starts[found]]] = fired[place[ends[found]]] = True
        return fired


def _nth_after(breaks: NDArray[np.intp], rows: NDArray[np.intp], nth: int, none: int) -> NDArray[np.intp]:
    index = np.searchsorted(breaks, rows, side="right") + nth - 1
    ends: NDArray[np.intp] = np.append(breaks, none)[np.minimum(index, len(breaks))]
    return ends
