"""Hours of earlier weeks, as alarms of shares read them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from sqlalchemy import ColumnElement, Connection, func, select

from outrider.assertions.detection import Hours
from outrider.assertions.detection.weekly import WEEK, WEEKS
from outrider.dataops.ledger.minutes import HOUR_US
from outrider.dataops.state.tables import FlagCount, RecordCount, table_of

from .minute_counts import ALL, CHAMPION, OF_VERSION, MinuteCounts
from .rate_alarms import Floats, PastHours, Stream

_FLAGS, _RECORDS = table_of(FlagCount), table_of(RecordCount)


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
        oldest = connection.scalar(
            select(func.min(_RECORDS.c.minute_us)).where(
                _RECORDS.c.model == self.model,
                _RECORDS.c.minute_us >= max(since_us, self.first * HOUR_US),
            )
        )
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
            own = [_FLAGS.c.slot == CHAMPION, _FLAGS.c.assertion == assertion] if assertion else []
            self._known[assertion] = self._read(connection, own)
        return self._known[assertion].get(part, np.zeros(self.stop - self.first))

    def _read(self, connection: Connection, own: Sequence[ColumnElement[bool]]) -> dict[str, Floats]:
        table = _FLAGS if own else _RECORDS
        hour = table.c.minute_us // HOUR_US
        query = select(table.c.slice, hour, func.sum(table.c.entities)).where(
            table.c.model == self.model,
            table.c.minute_us >= self.first * HOUR_US,
            table.c.minute_us < self.stop * HOUR_US,
            *own,
        )
        rows: dict[str, Floats] = {}
        for part, at, entities in connection.execute(query.group_by(table.c.slice, hour)):
            for name in (part, ALL):
                rows.setdefault(name, np.zeros(self.stop - self.first))[at - self.first] += entities
        return rows
