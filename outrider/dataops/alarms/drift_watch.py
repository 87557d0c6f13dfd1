"""Watch over one model's columns, by window of stored profiles."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select, update

from outrider.assertions import Batch
from outrider.assertions.detection.dispersion import FEWEST_WINDOWS
from outrider.assertions.drift.share_watch import ShareWatch, WatchRule
from outrider.assertions.profiling import Profile
from outrider.assertions.profiling.layout import batch_entities, first_of_entities
from outrider.dataops.ledger.minutes import MINUTE_US
from outrider.dataops.ledger.stored_profiles import ProfileRange, newest_layout, oldest_begin, read_weights
from outrider.dataops.state.improvement_tables import ChampionChange
from outrider.dataops.state.rows import replace_rows
from outrider.dataops.state.series_tables import DriftState
from outrider.dataops.state.tables import table_of

from .drift_streams import DriftStreams, Floats, StreamCounts, read_streams
from .rate_alarms import AlarmRule

Training: TypeAlias = Callable[[], tuple[str, Batch] | None]
"""Rows that the champion learned from, with the name of their dataset version; None where unknown."""
DAY_WINDOWS = 24
WEEK_WINDOWS = 168
_AGAIN = 6
"""Windows between two checks for a complete reference."""
_REFERENCES = 2
"""References for windows of one horizon, each with its part of alpha."""
_HEAD = 40
_CHANGE, _STATE = table_of(ChampionChange), table_of(DriftState)


@dataclass(slots=True)
class DriftReference:
    """Reference of a watch, with the windows passed since.

    ``begun_us`` is when it was requested, ``until_us`` is 0 while incomplete, ``following_us`` begins the
    next reference of a promoted version, or is 0.
    """

    begun_us: int
    since_us: int
    next_us: int
    until_us: int = 0
    following_us: int = 0
    streams: DriftStreams = field(default_factory=lambda: DriftStreams((), ()))
    watch: ShareWatch | None = None
    is_new: bool = True

    def to_bytes(self) -> bytes:
        times = [self.begun_us, self.since_us, self.next_us, self.until_us, self.following_us]
        head = np.array(times, dtype=np.int64).tobytes()
        return head if self.watch is None else head + self.watch.to_bytes()

    @classmethod
    def stored(cls, streams: str, payload: bytes, rule: WatchRule) -> "DriftReference":
        own = DriftStreams.from_json(json.loads(streams))
        begun, since, ahead, until, following = np.frombuffer(payload[:_HEAD], dtype=np.int64).tolist()
        rest = payload[_HEAD:]
        watch = ShareWatch.from_bytes(rest, own.watched(), rule) if rest else None
        return cls(begun, since, ahead, until, following, own, watch)

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Streams of outputs without a reference yet, shape (streams,)."""
        is_output = [share.column.startswith("outputs.") for share in self.streams.shares]
        return np.tile(is_output, len(self.streams.slices)) & bool(self.following_us)


@dataclass(slots=True)
class DriftWatch:
    """Decision about each complete window of stored profiles.

    The first day since a promotion is the reference (24 windows, 20 with records), then the first week,
    so that nights and weekends are known. Inputs are compared with the former reference on that day.
    """

    model: str
    rule: AlarmRule
    training: Training = lambda: None
    reference: DriftReference | None = None
    _is_stored: bool = True

    @property
    def width_us(self) -> int:
        return round(self.rule.drift_window_s * 1e6)

    @property
    def watch_rule(self) -> WatchRule:
        windows = max(1, round(self.rule.horizon_s / self.rule.drift_window_s))
        return WatchRule(self.rule.alpha / _REFERENCES, windows)

    def load(self, connection: Connection) -> None:
        """Read the stored state, unless its windows had another width."""
        if self.reference is not None:
            return
        row = connection.execute(select(_STATE).where(_STATE.c.model == self.model)).first()
        if row is not None and row.width_s == self.rule.drift_window_s:
            self.reference = DriftReference.stored(row.streams, row.payload, self.watch_rule)
            self.reference.is_new = False

    def next(self, connection: Connection, now_us: int, *, standing: bool) -> StreamCounts | None:
        """Counts of the next window to decide about, or None; makes and replaces the reference.

        While ``standing`` (an open incident of a column) the reference stays.
        """
        reference = self._current(connection, now_us, standing=standing)
        # a minute's profile is written behind it
        while reference is not None and now_us >= reference.next_us + self.width_us + MINUTE_US:
            self._refer(connection, reference, standing=standing)
            reference = self.reference
            assert reference is not None
            begin, reference.next_us = reference.next_us, reference.next_us + self.width_us
            self._is_stored = False
            if reference.watch is not None:
                return self.read(connection, begin, reference.next_us)
        return None

    def read(self, connection: Connection, since_us: int, until_us: int) -> StreamCounts:
        assert self.reference is not None
        found = read_weights(
            connection, self.model, self._span(since_us, until_us), width_s=self.width_us // 1_000_000
        )
        windows = max(1, (until_us - since_us) // self.width_us)
        return self.reference.streams.count(found, since_us, self.width_us, windows)

    def begin(self, begun_us: int, since_us: int) -> None:
        since = since_us // self.width_us * self.width_us
        following = since if self.reference is None else max(since, self.reference.next_us)
        self.reference = DriftReference(begun_us, since, following)
        self._is_stored = False

    def store(self, connection: Connection) -> None:
        """Write the changed state; names of categories only with a new reference."""
        reference = self.reference
        if reference is None or self._is_stored:
            return
        self._is_stored = True
        if reference.is_new:
            width_s, streams = round(self.rule.drift_window_s), json.dumps(reference.streams.to_json())
            replace_rows(connection, DriftState, [(self.model, width_s, streams, reference.to_bytes())])
            reference.is_new = False
        else:
            own = update(_STATE).where(_STATE.c.model == self.model)
            connection.execute(own.values(payload=reference.to_bytes()))

    def promoted_us(self, connection: Connection) -> int:
        own = _CHANGE.c.model == self.model, _CHANGE.c.action != "registered"
        return int(connection.scalar(select(func.max(_CHANGE.c.at_us)).where(*own)) or 0)

    def _current(self, connection: Connection, now_us: int, *, standing: bool) -> DriftReference | None:
        """Known reference or a new one, also after the clock was set back."""
        known, promoted = self.reference, self.promoted_us(connection)
        is_promoted = known is not None and known.begun_us < promoted <= now_us
        if known is not None and is_promoted and known.watch is not None and not standing:
            known.begun_us, known.following_us = now_us, self._window_behind(promoted)
            self._is_stored = False
        elif known is None or is_promoted or known.next_us > now_us + self.width_us:
            oldest = oldest_begin(connection, self.model, width_s=self.width_us // 1_000_000)
            if oldest is None:
                return None
            if not is_promoted:
                self.reference = None
            earliest = now_us - WEEK_WINDOWS * self.width_us
            self.begin(now_us, max(oldest, self._window_behind(promoted), earliest))
        return self.reference

    def _trained_on(
        self, connection: Connection, streams: DriftStreams
    ) -> tuple[str, tuple[Floats, Floats] | None]:
        found = self.training() if self.rule.drift_reference == "dataset" else None
        layout = newest_layout(connection, self.model)
        if found is None or layout is None:
            return "", None
        name, rows = found
        once = rows.take(np.flatnonzero(first_of_entities(batch_entities(rows))))
        return name, streams.count_inputs(Profile.of(once, layout))

    def _window_behind(self, at_us: int) -> int:
        return -(-at_us // self.width_us) * self.width_us

    def _refer(self, connection: Connection, reference: DriftReference, *, standing: bool) -> None:
        """Make the reference once enough windows have come: of a day, then of a week."""
        begin = reference.following_us or reference.since_us
        windows = (reference.next_us - begin) // self.width_us
        if windows < DAY_WINDOWS or windows % _AGAIN or (standing and reference.watch is not None):
            return
        known = (reference.until_us - reference.since_us) // self.width_us
        is_kept = reference.watch is not None and not reference.following_us
        if is_kept and (windows < WEEK_WINDOWS or known >= WEEK_WINDOWS):
            return
        span = self._span(max(begin, reference.next_us - WEEK_WINDOWS * self.width_us), reference.next_us)
        streams = read_streams(connection, self.model, span, width_us=self.width_us)
        if streams is None:
            return
        found = read_weights(connection, self.model, span, width_s=self.width_us // 1_000_000)
        count = (span.until_us - span.since_us) // self.width_us
        counts = streams.count(found, span.since_us, self.width_us, count)
        if counts.heard < FEWEST_WINDOWS:
            return
        named, mean = self._trained_on(connection, streams)
        streams = replace(streams, dataset=named)
        watch = ShareWatch(counts.hits, counts.seen, streams.watched(), self.watch_rule, mean=mean)
        self.reference = DriftReference(
            reference.begun_us, span.since_us, reference.next_us, span.until_us, streams=streams, watch=watch
        )

    @staticmethod
    def _span(since_us: int, until_us: int) -> ProfileRange:
        return ProfileRange(since_us=since_us, until_us=until_us)
