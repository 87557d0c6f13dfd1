"""Exact counts of a model by minute, as alarms read them."""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.dataops.ledger.cube import FLAGS, RECORDS, flags_of
from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.ledger.stated_values import OTHERS

Floats = NDArray[np.float64]
CHAMPION = "champion"
ALL = "*"
"""Slice of all records, beside those of their own."""
OF_VERSION = "\0"
"""Begin of the part of a version's stream: no other has it."""
_AGAIN_US = 10 * MINUTE_US
"""Minutes that are read again, beside those in which a window has flagged: judges may lag."""
_HOUR = 60


class MinuteRows(MutableMapping[tuple[str, str], Floats]):
    """Counts by assertion and slice or version, shape (minutes,).

    Hours without any take no memory.

    Examples
    --------
    >>> rows = MinuteRows(120)
    >>> rows.add(("x", "eu"), 70, 3)
    >>> rows["x", "eu"].nonzero()[0].tolist(), rows.hours
    ([70], 1)
    """

    def __init__(self, minutes: int, start: int = 0) -> None:
        self.minutes, self._start = minutes, start
        self._held: dict[tuple[str, str], dict[int, NDArray[np.uint32]]] = {}

    @property
    def hours(self) -> int:
        """Hours that are held, of all rows."""
        return sum(map(len, self._held.values()))

    def __getitem__(self, key: tuple[str, str]) -> Floats:
        found = np.zeros(self.minutes)
        for hour, cells in self._held[key].items():
            first = hour * _HOUR - self._start
            found[max(0, first) : first + _HOUR] = cells[max(0, -first) : max(0, self.minutes - first)]
        return found

    def __setitem__(self, key: tuple[str, str], row: Floats) -> None:
        self._held[key] = {}
        for at in np.flatnonzero(row).tolist():
            self.add(key, at, int(row[at]))

    def __delitem__(self, key: tuple[str, str]) -> None:
        del self._held[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, key: tuple[str, str], at: int, count: int) -> None:
        """Add a count to a minute of a row."""
        hour, minute = divmod(self._start + at, _HOUR)
        held = self._held.setdefault(key, {})
        if hour not in held:
            held[hour] = np.zeros(_HOUR, dtype=np.uint32)
        held[hour][minute] += count

    def shift(self, start: int, fresh: int) -> None:
        """Begin at another minute, and empty the minutes from ``fresh`` on."""
        self._start = start
        for key, held in list(self._held.items()):
            for hour, cells in list(held.items()):
                first = hour * _HOUR - start
                cells[: max(0, -first)] = 0
                cells[max(0, fresh - first) :] = 0
                if not cells.any():
                    del held[hour]
            if not held:
                del self._held[key]


@dataclass(slots=True)
class MinuteCounts:
    """Entities seen and flagged by each assertion in each complete minute.

    Arrays are of shape (minutes,), the newest minute last.
    """

    model: str
    minutes: int
    start_us: int = 0
    rows: MinuteRows = field(init=False)
    """By assertion and slice or version, ``ALL`` included; those seen stand under the empty assertion."""

    def __post_init__(self) -> None:
        self.rows = MinuteRows(self.minutes, self.start_us // MINUTE_US)

    @property
    def stop_us(self) -> int:
        """End of the newest complete minute."""
        return self.start_us + self.minutes * MINUTE_US

    @property
    def hours(self) -> NDArray[np.int64]:
        """Number of each minute's hour, shape (minutes,)."""
        return (self.start_us // MINUTE_US + np.arange(self.minutes)) // _HOUR

    def read(self, connection: Connection, now_us: int, *, changed_us: int | None = None) -> None:
        """Add the minutes that are complete now.

        Parameters
        ----------
        changed_us
            Earliest minute in which something was counted since the last look.
        """
        start = minute_of(now_us) - self.minutes * MINUTE_US
        is_back = start < self.start_us  # the clock was set: all is read again
        since = start if is_back else max(start, self.stop_us - _AGAIN_US)
        if changed_us is not None:
            since = max(start, min(since, changed_us))
        self.start_us = start
        self.rows.shift(start // MINUTE_US, (since - start) // MINUTE_US)
        by, stop = ("slice", "version", "minute_us"), self.stop_us
        seen = RECORDS.query(self.model, *by, sums=("entities",), since_us=since, until_us=stop)
        for row in connection.execute(seen):
            self._add("", *row)
        flags = FLAGS.query(
            self.model, "assertion", *by,
            sums=("entities",), since_us=since, until_us=stop, of=flags_of(None),
        )  # fmt: skip
        for row in connection.execute(flags):
            self._add(*row)

    def of(self, assertion: str, part: str) -> tuple[Floats, Floats]:
        """Hits, never more than were seen, and entities seen, shape (minutes,) each."""
        nothing = np.zeros(self.minutes)
        seen = self.rows.get(("", part), nothing)
        return np.minimum(self.rows.get((assertion, part), nothing), seen), seen

    def slices(self) -> list[str]:
        """Slices with streams of their own, by name.

        None where all records are of one. What is counted together is no stream: what belongs to it changes.
        """
        seen = [part for name, part in self.rows if not name and part != ALL and part[:1] != OF_VERSION]
        return sorted(part for part in seen if part != OTHERS) if len(seen) > 1 else []

    def versions(self) -> list[str]:
        """Parts of versions with records in the newest hour, by name.

        None where one version answers alone.
        """
        seen = [part for name, part in self.rows if not name and part[:1] == OF_VERSION]
        if len(seen) < 2:
            return []
        return sorted(
            part for part in seen if part != OF_VERSION + OTHERS and self.rows["", part][-_HOUR:].any()
        )

    def index(self, at_us: int) -> int:
        """Position of the minute that holds a time, in [0, minutes]."""
        return int(np.clip((at_us - self.start_us) // MINUTE_US, 0, self.minutes))

    def _add(self, assertion: str, part: str, version: str, at_us: int, entities: int) -> None:
        at = (at_us - self.start_us) // MINUTE_US
        for name in (part, ALL, *([OF_VERSION + version] if version else [])):
            self.rows.add((assertion, name), at, entities)
