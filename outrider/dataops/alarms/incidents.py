"""Incidents: alarms of one cause since one onset.

Each is announced once. What opens one: the first flag of a ``critical`` assertion, one incident for the
assertion however many slices follow; of ``warning`` assertions a proof that a share has risen, with a stated
chance of a false alarm (`rate_alarms`), one incident for each slice that explains it; of ``info``, nothing.
It is resolved by a person, by silence, or, of a ``warning``, once the share is what it was.

Of a live behavioral test (``warning`` or ``critical``) it is the proof that its failure rate is above its
tolerance. Silence proves nothing against that: it stands until another version or revision is looked at.

Silence itself is one too, where records or labels came in a rhythm, and where an assertion judged; see
`silence` and `assertion_silence`.

Clocks have incidents: one per model whose records say that they were captured long after they came, over
by silence; and one of no model, of the service's own clock, over when that has been steady for an hour.

A loss that has risen, as labels say, is one; see `performance`.

Drift of columns is a ticket, of level ``info``, and a column that was heard and is gone a silence; see
`drift_incidents`.

One more tells of records that state another version than the champion's; see `version_mismatch`; and one of a
version that the worker retired; see `retired_versions`.

Each kind has a module of its own, with a class that follows its incidents.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection, Row

from outrider.dataops.flags.live_rates import Alarm
from outrider.dataops.flags.rate_limit import NewFlags
from outrider.dataops.ledger.minutes import minute_of
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.clock import Step

from .assertion_silence import AssertionSilenceIncidents
from .clock_incidents import EventTimeIncidents, ServiceClockIncidents
from .critical_incidents import CriticalIncidents
from .drift_incidents import DriftIncidents
from .drift_watch import DriftWatch, Training
from .incident_writer import CommittedUnit, IncidentWriter
from .live_incidents import LiveTestIncidents
from .minute_counts import MinuteCounts
from .past_hours import StoredHours
from .performance import PerformanceIncidents
from .rate_alarms import AlarmRule, Stream
from .retired_versions import RetiredVersionIncidents
from .share_incidents import ShareIncidents
from .silence import SilenceIncidents, SilenceWatch
from .version_mismatch import VersionMismatchIncidents, forget_versions
from .watched_streams import WatchedStreams


class UnitFollower(Protocol):
    """Incidents of one kind that units open, count or resolve; ``rows`` are its unresolved ones."""

    def is_own(self, row: Row[Any]) -> bool: ...

    def follow(self, connection: Connection, rows: Sequence[Row[Any]], unit: CommittedUnit) -> None: ...


class MinuteFollower(Protocol):
    """Incidents of one kind that complete minutes open or resolve; ``rows`` are its unresolved ones."""

    def is_own(self, row: Row[Any]) -> bool: ...

    def follow_minute(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None: ...


class IncidentBook:
    """Incidents of one model, in the worker's transactions.

    Shares are decided by complete minutes, so counts are read once a minute; all state is in the
    database.
    """

    def __init__(
        self,
        model: str,
        rule: AlarmRule,
        targets: Sequence[WebhookTarget] = (),
        live: Mapping[str, str] | None = None,
        version: str | None = None,
        steps: Callable[[], Sequence[Step]] = lambda: (),
    ) -> None:
        self._writer = writer = IncidentWriter(model, rule, targets, version)
        self._counts = MinuteCounts(model, rule.minutes)
        self._live = LiveTestIncidents(writer, live or {})
        self._clock = ServiceClockIncidents(writer, steps)
        self._event_time = EventTimeIncidents(writer)
        self._retired = RetiredVersionIncidents(writer)
        self._critical = CriticalIncidents(writer, self._counts)
        shares = ShareIncidents(writer, self._counts, WatchedStreams(model), StoredHours(model))
        self._drift = DriftWatch(model, rule)
        self._by_unit: list[UnitFollower] = [
            self._live, self._clock, self._event_time, self._critical, shares,
        ]  # fmt: skip
        self._by_minute: list[MinuteFollower] = [
            VersionMismatchIncidents(writer),
            self._retired,
            shares,
            self._critical,
            SilenceIncidents(writer, SilenceWatch(model, rule)),
            AssertionSilenceIncidents(writer),
            PerformanceIncidents(writer),
            DriftIncidents(writer, self._drift),
        ]
        self._minute_us = -1
        """Minute in which counts were last read."""
        self._changed_us: int | None = None

    @property
    def version(self) -> str | None:
        return self._writer.version

    @version.setter
    def version(self, version: str | None) -> None:
        self._writer.version = version

    @property
    def training(self) -> Training:
        return self._drift.training

    @training.setter
    def training(self, training: Training) -> None:
        self._drift.training = training

    @property
    def live(self) -> Mapping[str, str]:
        return self._live.revisions

    @live.setter
    def live(self, revisions: Mapping[str, str]) -> None:
        self._live.revisions = revisions

    def follow(
        self,
        connection: Connection,
        found: Iterable[NewFlags],
        *,
        now_us: int,
        alarms: Sequence[Alarm] = (),
        ahead: int = 0,
        seq: int = 0,
    ) -> None:
        """Add flags and alarms of the champion's committed unit; resolve ended incidents.

        ``ahead`` counts records too far ahead of receipt, ``seq`` is the last block.
        """
        flags: dict[Stream, list[NewFlags]] = {}
        failures: Tally[str] = Tally()
        for new in found:
            self._changed_us = min(new.minute_us, self._changed_us or new.minute_us)
            if new.assertion in self.live:
                failures[new.assertion] += new.flags
            else:
                flags.setdefault((new.assertion, new.slice), []).append(new)
        unit = CommittedUnit(now_us, seq, flags, failures, alarms, ahead)
        rows = self._writer.unresolved(connection)
        for one in self._by_unit:
            one.follow(connection, [row for row in rows if one.is_own(row)], unit)
        if minute_of(now_us) != self._minute_us:
            self._minute_us = minute_of(now_us)
            self._follow_minute(connection, now_us)

    def _follow_minute(self, connection: Connection, now_us: int) -> None:
        self._counts.read(connection, now_us, changed_us=self._changed_us)
        self._changed_us = None
        rows = self._writer.unresolved(connection)
        for one in self._by_minute:
            one.follow_minute(connection, [row for row in rows if one.is_own(row)], now_us)

    def settle(self, connection: Connection, *, now_us: int, seq: int = 0) -> None:
        """Resolve ended incidents and detect silence as receive time passes."""
        self.follow(connection, (), now_us=now_us, seq=seq)

    def is_due(self, connection: Connection, *, now_us: int, seq: int = 0) -> bool:
        """True where :meth:`settle` may change anything; asked without the write lock."""
        if minute_of(now_us) != self._minute_us:
            return True
        rows = self._writer.unresolved(connection)
        return any(self._ends(connection, row, now_us=now_us, seq=seq) for row in rows)

    def _ends(self, connection: Connection, row: Row[Any], *, now_us: int, seq: int) -> bool:
        """True for an incident that ends without a unit or minute."""
        if self._live.is_own(row):
            return self._live.refuted(connection, row) is not None
        if self._clock.is_own(row):
            return self._clock.is_steady(row, now_us=now_us, seq=seq)
        return (self._event_time.is_own(row) or self._critical.is_own(row)) and self._writer.is_quiet(
            row, now_us
        )

    def retired(self, connection: Connection, version: str, why: str, *, now_us: int) -> None:
        self._retired.open(connection, version, why, now_us=now_us)

    def step(self, connection: Connection, *, by_us: int, seq: int) -> None:
        """Shift open incidents over a step of the clock at block ``seq``; announced once for all models."""
        forget_versions(connection, self._writer.model)
        self._clock.step(connection, by_us=by_us, seq=seq)
