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
"""Rows that the champion learned from, with the name of their dataset version; None where none is known."""
DAY_WINDOWS = 24
"""Windows of the first reference, at least."""
WEEK_WINDOWS = 168
"""Windows of the reference that takes its place, once they have come."""
_AGAIN = 6
"""Windows between two looks whether enough have records."""
_REFERENCES = 2
"""References that windows of one horizon may be held against, each with its part of alpha."""
_HEAD = 40
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
    following_us
        Begin of the reference that is to follow, of a version promoted since; 0 without one.
    """

    begun_us: int
    since_us: int
    next_us: int
    until_us: int = 0
    following_us: int = 0
    streams: DriftStreams = field(default_factory=lambda: DriftStreams((), ()))
    watch: ShareWatch | None = None
    is_new: bool = True
    """True for streams that are not stored yet."""

    def to_bytes(self) -> bytes:
        """Times and the state of the watch."""
        times = [self.begun_us, self.since_us, self.next_us, self.until_us, self.following_us]
        head = np.array(times, dtype=np.int64).tobytes()
        return head if self.watch is None else head + self.watch.to_bytes()

    @classmethod
    def stored(cls, streams: str, payload: bytes, rule: WatchRule) -> "DriftReference":
        """Reference of a row."""
        own = DriftStreams.from_json(json.loads(streams))
        begun, since, ahead, until, following = np.frombuffer(payload[:_HEAD], dtype=np.int64).tolist()
        rest = payload[_HEAD:]
        watch = ShareWatch.from_bytes(rest, own.watched(), rule) if rest else None
        return cls(begun, since, ahead, until, following, own, watch)

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Streams of outputs of a version without a reference yet, shape (streams,)."""
        is_output = [share.column.startswith("outputs.") for share in self.streams.shares]
        return np.tile(is_output, len(self.streams.slices)) & bool(self.following_us)


@dataclass(slots=True)
class DriftWatch:
    """Decision about each complete window of stored profiles.

    The first day since a model's promotion is the reference (24 windows, 20 of them with records), then the
    first week, so that nights and weekends are known. Inputs are held against the former one for that day.
    Hours of a week with other shares for a while, told or not, are part of how much hours differ.
    """

    model: str
    rule: AlarmRule
    training: Training = lambda: None
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

    def load(self, connection: Connection) -> None:
        """Read the stored state, unless its windows had another width."""
        if self.reference is not None:
            return
        row = connection.execute(select(_STATE).where(_STATE.c.model == self.model)).first()
        if row is not None and row.width_s == self.rule.drift_window_s:
            self.reference = DriftReference.stored(row.streams, row.payload, self.watch_rule)
            self.reference.is_new = False

    def next(self, connection: Connection, now_us: int, *, standing: bool) -> StreamCounts | None:
        """Counts of the next window to decide about, or None.

        The reference is made and replaced on the way.

        Parameters
        ----------
        standing
            True while the model has an incident of a column: then the reference stays.
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
            width_s, streams = round(self.rule.drift_window_s), json.dumps(reference.streams.to_json())
            replace_rows(connection, DriftState, [(self.model, width_s, streams, reference.to_bytes())])
            reference.is_new = False
        else:
            own = update(_STATE).where(_STATE.c.model == self.model)
            connection.execute(own.values(payload=reference.to_bytes()))

    def promoted_us(self, connection: Connection) -> int:
        """Time of the newest promotion or rollback; 0 without any."""
        own = _CHANGE.c.model == self.model, _CHANGE.c.action != "registered"
        return int(connection.scalar(select(func.max(_CHANGE.c.at_us)).where(*own)) or 0)

    def _current(self, connection: Connection, now_us: int, *, standing: bool) -> DriftReference | None:
        """Reference that is known, or one that begins; so where the clock was set back."""
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
        """Name of the dataset version that inputs are held against, and its counts by stream."""
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
        """Make the reference where enough windows have come: of a day first, then of a week."""
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
