"""Hours of earlier weeks, as alarms of shares read them."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from sqlalchemy import Connection

from outrider.assertions.detection import Hours
from outrider.assertions.detection.weekly import WEEK, WEEKS
from outrider.dataops.ledger.cube import FLAGS, RECORDS, flags_of
from outrider.dataops.ledger.minutes import HOUR_US

from .minute_counts import ALL, OF_VERSION, MinuteCounts
from .rate_alarms import Floats, PastHours, Stream


@dataclass(slots=True)
class StoredHours:
    """Sums by hour of a model's counts in the weeks before :class:`MinuteCounts`, for assertions about
    to alarm; read again each hour."""

    model: str
    first: int = 0
    stop: int = 0
    _known: dict[str, dict[str, Floats]] = field(default_factory=dict)

    def at(self, connection: Connection, counts: MinuteCounts) -> PastHours:
        span = counts.start_us // HOUR_US - WEEKS * WEEK - 1, counts.stop_us // HOUR_US - WEEK + 2
        if span != (self.first, self.stop):
            self.first, self.stop = span
            self._known.clear()
        return partial(self._of, connection)

    def weeks(self, connection: Connection, *, since_us: int) -> int:
        oldest = RECORDS.first(connection, self.model, since_us=max(since_us, self.first * HOUR_US))
        now = self.stop + WEEK - 2
        return 0 if oldest is None else int(min(WEEKS, (now - oldest // HOUR_US) // WEEK))

    def _of(self, connection: Connection, stream: Stream, since_us: int) -> Hours:
        # A version is held against the hours of all records.
        part = ALL if stream[1].startswith(OF_VERSION) else stream[1]
        hits, seen = (self._row(connection, name, part) for name in (stream[0], ""))
        judged = np.arange(self.first, self.stop) * HOUR_US >= since_us
        seen = np.where(judged, seen, 0.0)
        return Hours(self.first, np.minimum(hits, seen), seen)

    def _row(self, connection: Connection, assertion: str, part: str) -> Floats:
        if assertion not in self._known:
            self._known[assertion] = self._read(connection, assertion)
        return self._known[assertion].get(part, np.zeros(self.stop - self.first))

    def _read(self, connection: Connection, assertion: str) -> dict[str, Floats]:
        cube, of = (FLAGS, flags_of(assertion)) if assertion else (RECORDS, {})
        first_us, stop_us = self.first * HOUR_US, self.stop * HOUR_US
        query = cube.query(
            self.model, "slice", cube.step(HOUR_US),
            sums=("entities",), since_us=first_us, until_us=stop_us, of=of,
        )  # fmt: skip
        rows: dict[str, Floats] = {}
        for part, at, entities in connection.execute(query):
            for name in (part, ALL):
                rows.setdefault(name, np.zeros(self.stop - self.first))[at - self.first] += entities
        return rows
