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
OF_VERSION = "\0"
"""Begin of the part of a version's stream, unique to these."""
_AGAIN_US = 10 * MINUTE_US
"""Minutes that are read again because judges may lag."""
_HOUR = 60


class MinuteRows(MutableMapping[tuple[str, str], Floats]):
    """Counts by assertion and slice or version, shape (minutes,); hours without counts take no memory."""

    def __init__(self, minutes: int, start: int = 0) -> None:
        self.minutes, self._start = minutes, start
        self._held: dict[tuple[str, str], dict[int, NDArray[np.uint32]]] = {}

    @property
    def hours(self) -> int:
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
        hour, minute = divmod(self._start + at, _HOUR)
        held = self._held.setdefault(key, {})
        if hour not in held:
            held[hour] = np.zeros(_HOUR, dtype=np.uint32)
        held[hour][minute] += count

    def shift(self, start: int, fresh: int) -> None:
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
    """Entities seen and flagged by each assertion in each complete minute; arrays of shape (minutes,),
    newest last."""

    model: str
    minutes: int
    start_us: int = 0
    rows: MinuteRows = field(init=False)
    """By assertion and slice or version, ``ALL`` included; seen ones under the empty assertion."""

    def __post_init__(self) -> None:
        self.rows = MinuteRows(self.minutes, self.start_us // MINUTE_US)

    @property
    def stop_us(self) -> int:
        return self.start_us + self.minutes * MINUTE_US

    @property
    def hours(self) -> NDArray[np.int64]:
        return (self.start_us // MINUTE_US + np.arange(self.minutes)) // _HOUR

    def read(self, connection: Connection, now_us: int, *, changed_us: int | None = None) -> None:
        """Add the complete minutes; ``changed_us`` is the earliest minute counted since the last read."""
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
        """Hits, never more than seen, and entities seen, shape (minutes,) each."""
        nothing = np.zeros(self.minutes)
        seen = self.rows.get(("", part), nothing)
        return np.minimum(self.rows.get((assertion, part), nothing), seen), seen

    def slices(self) -> list[str]:
        """Slices with streams of their own, by name; ``OTHERS`` is none, because its members change."""
        seen = [part for name, part in self.rows if not name and part != ALL and part[:1] != OF_VERSION]
        return sorted(part for part in seen if part != OTHERS) if len(seen) > 1 else []

    def versions(self) -> list[str]:
        """Parts of versions with records in the newest hour; none where one version answers alone."""
        seen = [part for name, part in self.rows if not name and part[:1] == OF_VERSION]
        if len(seen) < 2:
            return []
        return sorted(
            part for part in seen if part != OF_VERSION + OTHERS and self.rows["", part][-_HOUR:].any()
        )

    def index(self, at_us: int) -> int:
        return int(np.clip((at_us - self.start_us) // MINUTE_US, 0, self.minutes))

    def _add(self, assertion: str, part: str, version: str, at_us: int, entities: int) -> None:
        at = (at_us - self.start_us) // MINUTE_US
        for name in (part, ALL, *([OF_VERSION + version] if version else [])):
            self.rows.add((assertion, name), at, entities)
