"""Book of stated values: the heaviest have a name in counts.

Slices, versions, groups, answers and labels are texts that a sender chooses. Each of these dimensions of a
model has ``PLACES``; a value with a place is counted by its name, the others together under ``OTHERS``.
Declared values need no place. A value takes a free place where it is first met. Where none is free, the
heaviest by records take those of the lightest at the end of a minute, so that whoever comes first cannot keep
the others out. What flags say has no part in it, so evidence of a value is not selected by what it shows.

Records are counted by a summary that forgets: a record weighs half as much after a day. It holds less than
twice ``COUNTERS`` values, and misses less than one record in ``COUNTERS`` of any. So a value of 1 % of the
records of such a time has a place by the end of the minute: of 200 holders the lightest has less than 0.5 %.
Whole numbers alone are added and halved, in the order of the records: where blocks are cut or a process dies
changes nothing.

References
----------
Misra and Gries, "Finding Repeated Elements", Science of Computer Programming 1982; Agarwal et al., "Mergeable
Summaries", PODS 2012, section 2, whose prune at twice the size is used here.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.dataops.state.rows import replace_rows
from outrider.dataops.state.series_tables import StatedDimension, StatedValue

from .minutes import DAY_US, HOUR_US, minute_of

OTHERS = "__other__"
PLACES = 200
COUNTERS = 1000
_KINDS = ("\0", "\1")
"""Begins of counts of another kind, which no value may pass for."""
LONGEST = 100
KEPT_US = 2 * DAY_US
LEAST = 20
"""Records, of today's weight, from which a value may take the place of another."""
HEAVIER = 1.5
"""Factor over the lightest holder, so that two similar values do not take turns."""
VERSION, SLICE, ANSWER, LABEL, GROUP = "version", "slice", "answer", "label", "group:"
_AT_ONCE = 4096
_WEIGHTS = [round(1000 * 2 ** (hour / 24)) for hour in range(24)]
"""Weight of a record by hour of the day; at midnight all counts are halved."""


@dataclass(slots=True)
class ValueBook:
    """Values of one dimension, with places and counts.

    Examples
    --------
    >>> book = ValueBook(places=1)
    >>> book.meet(["eu", "us", "eu"], 0).tolist()
    [True, False, True]
    >>> _ = book.meet(["us"] * LEAST, 0)
    >>> book.meet(["us", "eu"], 60_000_000).tolist()
    [True, False]
    """

    places: int = PLACES
    counters: int = COUNTERS
    least: int = LEAST
    declared: frozenset[str] = frozenset()
    minute_us: int = 0
    total: int = 0
    """Weight of all records; ``folded`` is that under ``OTHERS``."""
    folded: int = 0
    error: int = 0
    """Largest undercount of a value."""
    changed: set[str] = field(default_factory=set)
    stored: tuple[int, ...] = ()
    _named: set[str] = field(default_factory=set)
    _met: dict[str, int] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    """Counts with ``error`` added, so that only new ones change."""

    def __contains__(self, value: object) -> bool:
        return value in self.declared or value in self._named

    def __len__(self) -> int:
        return len(self._met)

    @property
    def sums(self) -> tuple[int, ...]:
        return self.minute_us, self.total, self.folded, self.error

    def declare(self, values: Iterable[str]) -> None:
        declared = frozenset(values)
        if declared != self.declared:
            self.declared = declared
            for value in self._named & declared:
                self._forget(value)

    def count(self, value: str) -> int:
        return max(0, self._counts.get(value, 0) - self.error)

    def meet(self, values: Sequence[str | None] | pa.Array, minute_us: int) -> NDArray[np.bool_]:
        """Count records of one minute; mask of the named ones, shape (records,).

        Records without a value are named: there is nothing to name.
        """
        if minute_us > self.minute_us:
            self._begin(minute_us)
        given = values if isinstance(values, pa.Array) else pa.array(values, pa.string())
        encoded = given.dictionary_encode()
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy().astype(np.int64)
        texts = encoded.dictionary.to_pylist()
        is_named = np.ones(len(texts) + 1, dtype=np.bool_)
        is_named[:-1] = [self._admit(text) for text in texts]
        found: NDArray[np.bool_] = is_named[codes]
        weight = _WEIGHTS[self.minute_us % DAY_US // HOUR_US]
        self.total += weight * int(np.count_nonzero(codes < len(texts)))
        self.folded += weight * int(np.count_nonzero(~found))
        self._count(texts, codes[codes < len(texts)], weight)
        return found

    def shift(self, by_us: int) -> None:
        self.minute_us = max(0, minute_of(self.minute_us + by_us))
        self._met = {value: minute_of(at + by_us) for value, at in self._met.items()}
        self.changed |= self._met.keys()

    # ---- places ----------------------------------------------------------------------------------------

    def _admit(self, value: str) -> bool:
        if not value or value in self._named or value in self.declared:
            return True
        if not self._is_counted(value) or len(self._named) >= self.places:
            return False
        self._named.add(value)
        return True

    def _begin(self, minute_us: int) -> None:
        """Begin a minute: forget, and give places to the heaviest."""
        days = minute_us // DAY_US - self.minute_us // DAY_US
        if days and self.minute_us:
            self.total, self.folded, self.error = (
                one >> days for one in (self.total, self.folded, self.error)
            )
            self._counts = {value: count >> days for value, count in self._counts.items()}
            self._drop_light()
            self.changed |= self._met.keys()
        self.minute_us = minute_us
        for value in [value for value, at in self._met.items() if at <= minute_us - KEPT_US]:
            self._forget(value)
        self._compete()

    def _compete(self) -> None:
        weight = self.least * _WEIGHTS[self.minute_us % DAY_US // HOUR_US]
        waiting = [
            (-count + self.error, value)
            for value, count in self._counts.items()
            if count - self.error >= weight and value not in self
        ]
        if not waiting:
            return
        holders = iter(sorted((self.count(value), self._met[value], value) for value in self._named))
        for negative, value in sorted(waiting):
            if len(self._named) >= self.places:
                lightest, _, holder = next(holders, (-negative, 0, ""))
                if -negative <= HEAVIER * (lightest + self.error):
                    return
                self._named.discard(holder)
                self._let_go(holder)
            self._named.add(value)
            self.changed.add(value)

    # ---- counts ----------------------------------------------------------------------------------------

    def _count(self, texts: Sequence[str], codes: NDArray[np.int64], weight: int) -> None:
        while len(codes):
            part = codes[:_AT_ONCE]
            own, first, numbers = np.unique(part, return_index=True, return_counts=True)
            room, until = 2 * self.counters - len(self._counts), len(part)
            firsts = zip(first.tolist(), own.tolist(), strict=True)
            new = [at for at, code in firsts if self._is_new(texts[code])]
            if len(new) >= room:
                until = sorted(new)[room - 1] + 1
                own, numbers = np.unique(part[:until], return_counts=True)
            for code, number in zip(own.tolist(), numbers.tolist(), strict=True):
                self._add(texts[code], weight * number)
            if len(new) >= room:
                self.error = nlargest(self.counters + 1, self._counts.values())[-1]
                self._drop_light()
            codes = codes[until:]

    def _is_new(self, value: str) -> bool:
        return value not in self._counts and self._is_counted(value)

    def _is_counted(self, value: str) -> bool:
        is_own = value in self.declared or value == OTHERS or value[:1] in _KINDS
        return bool(value) and not is_own and len(value) <= LONGEST

    def _add(self, value: str, weight: int) -> None:
        if self._is_counted(value):
            self._counts[value] = self._counts.get(value, self.error) + weight
            self._met[value] = self.minute_us
            self.changed.add(value)

    def _drop_light(self) -> None:
        light = [value for value, count in self._counts.items() if count <= self.error]
        for value in light:
            del self._counts[value]
            self._let_go(value)

    def _let_go(self, value: str) -> None:
        self.changed.add(value)
        if value not in self._counts and value not in self._named:
            self._met.pop(value, None)

    def _forget(self, value: str) -> None:
        self._named.discard(value)
        self._counts.pop(value, None)
        self._let_go(value)

    # ---- rows ------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[tuple[str, int, int, bool]]:
        for value in sorted(self.changed & self._met.keys()):
            yield value, self._counts.get(value, 0), self._met[value], value in self._named

    def restore(self, value: str, count: int, met_us: int, *, is_named: bool) -> None:
        self._met[value] = met_us
        if count:
            self._counts[value] = count
        if is_named:
            self._named.add(value)


@dataclass(slots=True)
class StatedValues:
    """Books of all dimensions of a model.

    ``folded`` counts records under ``OTHERS`` by dimension since the last :meth:`take_folded`; ``filled``
    are dimensions new to it.
    """

    model: str
    books: dict[str, ValueBook] = field(default_factory=dict)
    folded: Tally[str] = field(default_factory=Tally)
    filled: list[str] = field(default_factory=list)

    @classmethod
    def stored(cls, connection: Connection, model: str) -> "StatedValues":
        found = cls(model)
        query = "SELECT dimension, minute_us, total, folded, error FROM stated_dimension WHERE model = ?"
        for row in connection.exec_driver_sql(query, (model,)):
            book = found.book(row.dimension)
            book.minute_us, book.total, book.folded, book.error = book.stored = row[1:]
        query = "SELECT dimension, value, count, met_us, is_named FROM stated_value WHERE model = ?"
        for row in connection.exec_driver_sql(query, (model,)):
            dimension, value, count, met_us, is_named = row
            found.book(dimension).restore(value, count, met_us, is_named=bool(is_named))
        return found

    def book(self, dimension: str) -> ValueBook:
        return self.books.setdefault(dimension, ValueBook())

    def meet(
        self, dimension: str, values: Sequence[str | None] | pa.Array, minutes_us: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Count records in order; mask of the named ones, shape (records,).

        Parameters
        ----------
        minutes_us
            Minute of receipt of each record.
        """
        book = self.book(dimension)
        had = book.folded
        borders = [*(np.flatnonzero(np.diff(minutes_us)) + 1).tolist(), len(minutes_us)]
        found, start = [np.ones(0, dtype=np.bool_)], 0
        for end in borders:
            if end > start:
                found.append(book.meet(values[start:end], int(minutes_us[start])))
            start = end
        named = np.concatenate(found)
        self.folded[dimension] += int(np.count_nonzero(~named))
        if book.folded and not had:
            self.filled.append(dimension)
        return named

    def take_folded(self) -> tuple[Tally[str], list[str]]:
        found = +self.folded, self.filled
        self.folded, self.filled = Tally(), []
        return found

    def shift(self, by_us: int) -> None:
        for book in self.books.values():
            book.shift(by_us)

    def store(self, connection: Connection) -> None:
        changed = {name: book for name, book in self.books.items() if book.sums != book.stored}
        sums = [(self.model, name, *book.sums) for name, book in changed.items()]
        replace_rows(connection, StatedDimension, sums)
        for dimension, book in self.books.items():
            book.stored = book.sums
            rows = [(self.model, dimension, *row) for row in book.rows()]
            gone = sorted(book.changed - {row[2] for row in rows})
            replace_rows(connection, StatedValue, rows)
            forget_values(connection, self.model, dimension, gone)
            book.changed.clear()


def version_words(version: str) -> str:
    """Name of a counted version for people.

    Examples
    --------
    >>> version_words("3"), version_words(OTHERS), version_words("")
    ('version 3', 'other versions', 'version not known')
    """
    return "other versions" if version == OTHERS else f"version {version or 'not known'}"


def slice_words(part: str) -> str:
    return "other slices" if part == OTHERS else part


def folded_shares(connection: Connection, model: str) -> dict[str, float]:
    """Share of a model's records counted under ``OTHERS``, by dimension.

    None where there are none. A record weighs half as much after a day.
    """
    query = (
        "SELECT dimension, 1.0 * folded / total FROM stated_dimension"
        " WHERE model = ? AND folded > 0 AND total > 0 ORDER BY dimension"
    )
    return {row[0]: row[1] for row in connection.exec_driver_sql(query, (model,))}


def forget_values(connection: Connection, model: str, dimension: str, values: Iterable[str]) -> None:
    if rows := [(model, dimension, value) for value in values]:
        query = "DELETE FROM stated_value WHERE model = ? AND dimension = ? AND value = ?"
        connection.exec_driver_sql(query, rows)


def forget_unmet(connection: Connection, model: str, *, now_us: int) -> None:
    """Drop values that were not met for ``KEPT_US``; their book does so with the next record."""
    query = "DELETE FROM stated_value WHERE model = ? AND met_us <= ?"
    connection.exec_driver_sql(query, (model, minute_of(now_us) - KEPT_US))
