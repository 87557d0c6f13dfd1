"""Watch over one model's columns, by window of stored profiles."""

import json
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import Connection, func, select, update

from outrider.assertions.detection.dispersion import FEWEST_WINDOWS
from outrider.assertions.drift.share_watch import ShareWatch, WatchRule
from outrider.dataops.ledger.minutes import MINUTE_US
from outrider.dataops.ledger.stored_profiles import ProfileRange, oldest_begin, read_weights
from outrider.dataops.state.improvement_tables import ChampionChange
from outrider.dataops.state.rows import replace_rows
from outrider.dataops.state.tables import DriftState, table_of

from .drift_streams import DriftStreams, StreamCounts, read_streams
from .rate_alarms import AlarmRule

DAY_WINDOWS = 24
"""Windows of the first reference, at least."""
WEEK_WINDOWS = 168
"""Windows of the reference that takes its place, once they have come."""
_AGAIN = 6
"""Windows between two looks whether enough have records."""
_REFERENCES = 2
"""References that windows of one horizon may be held against, each with its part of alpha."""
_HEAD = 32
"""Bytes of the times."""
_CHANGE, _STATE = table_of(ChampionChange), table_of(DriftState)


@dataclass(slots=True)
class DriftReference:
    """Reference of a watch, with the windows passed since.

    Attributes
    ----------
    begun_us
        Time of receipt when it was asked for: what was decided before concerns another reference.
    since_us, until_us
        Its windows; ``until_us`` is 0 while too few have come.
    next_us
        Begin of the window to look at next.
    """

    begun_us: int
    since_us: int
    next_us: int
    until_us: int = 0
    streams: DriftStreams = field(default_factory=lambda: DriftStreams((), ()))
    watch: ShareWatch | None = None
    is_new: bool = True
    """True for streams that are not stored yet."""

    def to_bytes(self) -> bytes:
        """Times and the state of the watch."""
        times = [self.begun_us, self.since_us, self.next_us, self.until_us]
        head = np.array(times, dtype=np.int64).tobytes()
        return head if self.watch is None else head + self.watch.to_bytes()

    @classmethod
    def stored(cls, streams: str, payload: bytes, rule: WatchRule) -> "DriftReference":
        """Reference of a row."""
        own = DriftStreams.from_json(json.loads(streams))
        begun, since, following, until = np.frombuffer(payload[:_HEAD], dtype=np.int64).tolist()
        rest = payload[_HEAD:]
        watch = ShareWatch.from_bytes(rest, own.watched(), rule) if rest else None
        return cls(begun, since, following, until, own, watch)


@dataclass(slots=True)
class DriftWatch:
    """Decision about each complete window of stored profiles.

    The first day since a model's promotion is the reference (24 windows, 20 of them with records), then the
    first week, so that nights and weekends are known. Which windows of a week had other shares for a while,
    and were told, is part of how much windows differ.
    """

    model: str
    rule: AlarmRule
    reference: DriftReference | None = None
    _is_stored: bool = True

    @property
    def width_us(self) -> int:
        """Width of a window."""
        return round(self.rule.drift_window_s * 1e6)

    @property
    def watch_rule(self) -> WatchRule:
        """Guarantee against one reference."""
        windows = max(1, round(self.rule.horizon_s / self.rule.drift_window_s))
        return WatchRule(self.rule.alpha / _REFERENCES, windows)

    def next(self, connection: Connection, now_us: int, *, standing: bool) -> StreamCounts | None:
        """Counts of the next window to decide about, or None.

        The reference is made and replaced on the way.

        Parameters
        ----------
        standing
            True while the model has an incident of a column: then the reference stays.
        """
        reference = self._current(connection, now_us)
        # a minute's profile is written behind it
        while reference is not None and now_us >= reference.next_us + self.width_us + MINUTE_US:
            self._refer(connection, reference, standing=standing)
            begin, reference.next_us = reference.next_us, reference.next_us + self.width_us
            self._is_stored = False
            if reference.watch is not None:
                return self.read(connection, begin, reference.next_us)
        return None

    def read(self, connection: Connection, since_us: int, until_us: int) -> StreamCounts:
        """Counts of the streams in the stored windows of a span."""
        assert self.reference is not None
        found = read_weights(
            connection, self.model, self._span(since_us, until_us), width_s=self.width_us // 1_000_000
        )
        windows = max(1, (until_us - since_us) // self.width_us)
        return self.reference.streams.count(found, since_us, self.width_us, windows)

    def begin(self, begun_us: int, since_us: int) -> None:
        """Let another reference begin with the window of ``since_us``."""
        since = since_us // self.width_us * self.width_us
        following = since if self.reference is None else max(since, self.reference.next_us)
        self.reference = DriftReference(begun_us, since, following)
        self._is_stored = False

    def store(self, connection: Connection) -> None:
        """Write the state where that has changed.

        Names of categories are written with a new reference alone.
        """
        reference = self.reference
        if reference is None or self._is_stored:
            return
        self._is_stored = True
        if reference.is_new:
            row = self.model, json.dumps(reference.streams.to_json()), reference.to_bytes()
            replace_rows(connection, DriftState, [row])
            reference.is_new = False
        else:
            own = update(_STATE).where(_STATE.c.model == self.model)
            connection.execute(own.values(payload=reference.to_bytes()))

    def promoted_us(self, connection: Connection) -> int:
        """Time of the newest promotion or rollback; 0 without any."""
        own = _CHANGE.c.model == self.model, _CHANGE.c.action != "registered"
        return int(connection.scalar(select(func.max(_CHANGE.c.at_us)).where(*own)) or 0)

    def _current(self, connection: Connection, now_us: int) -> DriftReference | None:
        """Reference as stored or begun; another behind a promotion, or where the clock was set back."""
        if self.reference is None:
            row = connection.execute(select(_STATE).where(_STATE.c.model == self.model)).first()
            if row is not None:
                self.reference = DriftReference.stored(row.streams, row.payload, self.watch_rule)
                self.reference.is_new = False
        promoted = self.promoted_us(connection)
        known = self.reference
        if known is not None and (known.next_us - known.since_us) % self.width_us:
            known = self.reference = None  # windows had another width
        is_ahead = known is not None and known.next_us > now_us + self.width_us
        if known is None or known.begun_us < promoted <= now_us or is_ahead:
            oldest = oldest_begin(connection, self.model, width_s=self.width_us // 1_000_000)
            if oldest is None:
                return None
            if is_ahead:
                self.reference = None
            behind = promoted + self.width_us - 1 if promoted else 0
            self.begin(now_us, max(oldest, behind, now_us - WEEK_WINDOWS * self.width_us))
        return self.reference

    def _refer(self, connection: Connection, reference: DriftReference, *, standing: bool) -> None:
        """Make the reference where enough windows have come: of a day first, then of a week."""
        windows = (reference.next_us - reference.since_us) // self.width_us
        known = (reference.until_us - reference.since_us) // self.width_us
        if windows < DAY_WINDOWS or windows % _AGAIN or known >= WEEK_WINDOWS:
            return
        if reference.watch is not None and (windows < WEEK_WINDOWS or standing):
            return
        span = self._span(
            max(reference.since_us, reference.next_us - WEEK_WINDOWS * self.width_us), reference.next_us
        )
        streams = read_streams(connection, self.model, span, width_us=self.width_us)
        if streams is None:
            return
        found = read_weights(connection, self.model, span, width_s=self.width_us // 1_000_000)
        count = (span.until_us - span.since_us) // self.width_us
        counts = streams.count(found, span.since_us, self.width_us, count)
        if counts.heard < FEWEST_WINDOWS:
            return
        reference.streams, reference.until_us, reference.is_new = streams, reference.next_us, True
        reference.watch = ShareWatch(counts.hits, counts.seen, streams.watched(), self.watch_rule)

    @staticmethod
    def _span(since_us: int, until_us: int) -> ProfileRange:
        return ProfileRange(since_us=since_us, until_us=until_us)
