"""Exact counts of a model by minute, as alarms read them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.state.tables import FlagCount, RecordCount, table_of

Floats = NDArray[np.float64]
CHAMPION = "champion"
ALL = "*"
"""Slice of all records, beside those of their own."""
MOST_SLICES = 100
"""Slices with streams of their own, those of the most records: the others count in all records alone."""
OF_VERSION = "\0"
"""Begin of the part of a version's stream: no other has it."""
MOST_VERSIONS = 10
"""Versions with streams of their own, those of the most records of an hour."""
_AGAIN_US = 10 * MINUTE_US
"""Minutes that are read again, beside those in which a window has flagged: judges may lag."""
_HOUR = 60
_FLAGS, _RECORDS = table_of(FlagCount), table_of(RecordCount)


@dataclass(slots=True)
class MinuteCounts:
    """Entities seen and flagged by each assertion in each complete minute.

    Arrays are of shape (minutes,), the newest minute last.
    """

    model: str
    minutes: int
    start_us: int = 0
    rows: dict[tuple[str, str], Floats] = field(default_factory=dict)
    """By assertion and slice or version, ``ALL`` included; those seen stand under the empty assertion."""

    @property
    def stop_us(self) -> int:
        """End of the newest complete minute."""
        return self.start_us + self.minutes * MINUTE_US

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
        self._shift(start, since)
        minute = _RECORDS.c.minute_us
        query = select(_RECORDS.c.slice, _RECORDS.c.version, minute, _RECORDS.c.entities).where(
            _RECORDS.c.model == self.model, minute >= since, minute < self.stop_us
        )
        for part, version, at, entities in connection.execute(query):
            self._add("", part, version, at, entities)
        minute = _FLAGS.c.minute_us
        own = _FLAGS.c.model == self.model, _FLAGS.c.slot == CHAMPION
        columns = _FLAGS.c.assertion, _FLAGS.c.slice, _FLAGS.c.version, minute
        flagged = select(*columns, func.sum(_FLAGS.c.entities)).where(
            *own, minute >= since, minute < self.stop_us
        )
        name: str
        for name, part, version, at, entities in connection.execute(flagged.group_by(*columns)):
            self._add(name, part, version, at, entities)

    def of(self, assertion: str, part: str) -> tuple[Floats, Floats]:
        """Hits, never more than were seen, and entities seen, shape (minutes,) each."""
        nothing = np.zeros(self.minutes)
        seen = self.rows.get(("", part), nothing)
        return np.minimum(self.rows.get((assertion, part), nothing), seen), seen

    def slices(self) -> list[str]:
        """Slices with streams of their own, by name.

        None where all records are of one.
        """
        seen = {
            part: float(row.sum())
            for (name, part), row in self.rows.items()
            if not name and part != ALL and not part.startswith(OF_VERSION)
        }
        largest = sorted(seen, key=lambda part: (-seen[part], part))[:MOST_SLICES]
        return sorted(largest) if len(seen) > 1 else []

    def versions(self) -> list[str]:
        """Parts of versions with streams of their own, by name.

        None where one version answers alone.
        """
        recent = {
            part: float(row[-_HOUR:].sum())
            for (name, part), row in self.rows.items()
            if not name and part.startswith(OF_VERSION)
        }
        found = sorted((part for part in recent if recent[part]), key=lambda part: (-recent[part], part))
        return sorted(found[:MOST_VERSIONS]) if len(recent) > 1 else []

    def index(self, at_us: int) -> int:
        """Position of the minute that holds a time, in [0, minutes]."""
        return int(np.clip((at_us - self.start_us) // MINUTE_US, 0, self.minutes))

    def _add(self, assertion: str, part: str, version: str, at_us: int, entities: int) -> None:
        for name in (part, ALL, *([OF_VERSION + version] if version else [])):
            if (assertion, name) not in self.rows:
                self.rows[assertion, name] = np.zeros(self.minutes)
            self.rows[assertion, name][(at_us - self.start_us) // MINUTE_US] += entities

    def _shift(self, start: int, since: int) -> None:
        """Move the window on, and empty what is read again."""
        by, self.start_us = (start - self.start_us) // MINUTE_US, start
        fresh = (since - start) // MINUTE_US
        for key, row in list(self.rows.items()):
            moved = np.zeros(self.minutes)
            if 0 <= by < self.minutes:
                moved[: self.minutes - by] = row[by:]
            moved[fresh:] = 0.0
            if moved.any():
                self.rows[key] = moved
            else:
                del self.rows[key]
