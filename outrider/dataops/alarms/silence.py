"""Silence of records and labels that came in a rhythm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, select

from outrider.assertions.detection import rise_evidence
from outrider.dataops.ledger.cube import RECORDS
from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.tables import table_of

from .explanation import iso
from .incident_writer import UNMUTED, IncidentWriter, is_unmuted
from .rate_alarms import AlarmRule

Bools = NDArray[np.bool_]
SILENT = "silence"
WHAT = ("records", "labels")
DAY = 1_440
LOOKBACK_MINUTES = 11 * DAY
"""A week and a long weekend before it."""
_NEAR = 30
"""Minutes around the same time of earlier days."""
_LEAST = 60
"""Fewest minutes of a rhythm."""
_ODDS = 2.0
_LABELS_EVERY = 10
"""Minutes between two checks of labels, which are many."""
_LABEL = table_of(Label)


@dataclass(frozen=True, slots=True)
class Silence:
    model: str
    what: str
    since_us: int
    minutes: int
    share: float

    @property
    def sentence(self) -> str:
        return (
            f"no {self.what} of {self.model} since {iso(self.since_us)}: {self.minutes} minutes, where "
            f"{self.share:.0%} of the minutes before had some"
        )

    def details(self, rule: AlarmRule) -> dict[str, Any]:
        at = iso(self.since_us)
        return {
            "onset": {"first": at, "likeliest": at, "last": iso(self.since_us + MINUTE_US)},
            "before": {"share": round(self.share, 4)}, "now": {"share": 0.0, "seen": self.minutes},
            "explained_by": [], "event": None, "records": [], "action": "check_sender",
            "guarantee": {"alpha": rule.alpha, "horizon_s": rule.horizon_s},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class SilenceEvidence:
    """Evidence that records or labels have stopped.

    ``evidence`` and ``needed`` are logarithms; None where no rhythm is known.
    """

    what: str
    newest_us: int | None
    evidence: float | None
    needed: float


@dataclass(slots=True)
class SilenceWatch:
    """Watch over minutes in which nothing comes, by a model's own rhythm.

    **Null**: minutes are silent, given those before, with one unknown probability (twice its odds at most),
    or with that of the same time of earlier days, or of a week ago. **Guarantee**: a false alarm within
    ``horizon_s`` has a chance of at most ``alpha``; all have to be refuted (the smallest of e-values is one).
    Minutes in which no worker ran are none.
    """

    model: str
    rule: AlarmRule
    begun_us: int | None = None

    def look(self, connection: Connection, now_us: int) -> list[Silence]:
        stop = minute_of(now_us)
        if self.begun_us is None:
            self.begun_us = stop
        found = (self._of(what, self._minutes(connection, what, stop, now_us), stop) for what in WHAT)
        return [one for one in found if one is not None]

    def has_come(self, connection: Connection, what: str, *, since_us: int, now_us: int) -> bool:
        newest = self._newest(connection, what, now_us)
        return newest is not None and newest >= minute_of(since_us)

    def _newest(self, connection: Connection, what: str, now_us: int) -> int | None:
        """Time of the newest, ignoring later ones of a clock that was ahead; None without any."""
        if what == "records":
            return RECORDS.last(connection, self.model, until_us=now_us)
        own = select(_LABEL.c.received_us).where(_LABEL.c.model == self.model)
        own = own.where(_LABEL.c.received_us <= now_us)
        own = own.order_by(_LABEL.c.seq.desc(), _LABEL.c.row.desc()).limit(1)
        newest: int | None = connection.scalar(own)
        return newest

    def _minutes(self, connection: Connection, what: str, stop: int, now_us: int) -> NDArray[np.int64]:
        """Minutes before ``stop`` in which something came, ascending; empty without silence."""
        newest = self._newest(connection, what, now_us)
        is_heard = newest is None or newest >= stop - MINUTE_US
        if is_heard or (what == "labels" and stop // MINUTE_US % _LABELS_EVERY):
            return np.zeros(0, dtype=np.int64)
        return self._came(connection, what, stop)

    def _came(self, connection: Connection, what: str, stop: int) -> NDArray[np.int64]:
        since = stop - LOOKBACK_MINUTES * MINUTE_US
        if what == "records":
            query = RECORDS.query(self.model, "minute_us", since_us=since, until_us=stop)
        else:
            minute = _LABEL.c.received_us - _LABEL.c.received_us % MINUTE_US
            own = _LABEL.c.model == self.model, _LABEL.c.received_us.between(since, stop - 1)
            query = select(minute).where(*own)
            query = query.distinct()
        return np.sort(np.array(connection.scalars(query).all(), dtype=np.int64))

    def evidence(self, connection: Connection, what: str, now_us: int) -> SilenceEvidence:
        """Evidence that something has stopped, as if a worker had always looked."""
        stop, newest = minute_of(now_us), self._newest(connection, what, now_us)
        if newest is not None and newest >= stop - MINUTE_US:
            is_known = minute_of(newest) - self._oldest(connection, what) >= _LEAST * MINUTE_US
            return SilenceEvidence(what, newest, 0.0 if is_known else None, self._needed)
        came = self._came(connection, what, stop)
        if newest is None or not self._has_rhythm(came):
            return SilenceEvidence(what, newest, None, self._needed)
        return SilenceEvidence(what, newest, _lowest(came, int(came[-1]) + MINUTE_US, stop), self._needed)

    def _oldest(self, connection: Connection, what: str) -> int:
        if what == "records":
            return RECORDS.first(connection, self.model) or 0
        own = select(_LABEL.c.received_us).where(_LABEL.c.model == self.model)
        own = own.order_by(_LABEL.c.seq, _LABEL.c.row).limit(1)
        return minute_of(int(connection.scalar(own) or 0))

    @property
    def _needed(self) -> float:
        return math.log(len(WHAT) * self.rule.horizon / self.rule.alpha)

    @staticmethod
    def _has_rhythm(came: NDArray[np.int64]) -> bool:
        return len(came) > 0 and bool(came[-1] - came[0] >= _LEAST * MINUTE_US)

    def _of(self, what: str, came: NDArray[np.int64], stop: int) -> Silence | None:
        if self.begun_us is None or not self._has_rhythm(came):
            return None
        since = max(int(came[-1]) + MINUTE_US, self.begun_us)
        if _lowest(came, since, stop) < self._needed:
            return None
        minutes = (stop - since) // MINUTE_US
        share = float(_heard(came).mean())
        return Silence(self.model, what, int(came[-1]) + MINUTE_US, minutes, share)


@dataclass(slots=True)
class SilenceIncidents:
    writer: IncidentWriter
    watch: SilenceWatch

    @staticmethod
    def is_own(row: Row[Any]) -> bool:
        return row.kind == SILENT and row.assertion in WHAT and "silent" not in row.details

    def follow_minute(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        silent = {one.what: one for one in self.watch.look(connection, now_us)}
        for row in rows:
            if self.watch.has_come(connection, row.assertion, since_us=row.opened_us, now_us=now_us):
                self.writer.resolve(connection, row, now_us, why=f"{row.assertion} come again")
            elif is_unmuted(row, now_us):
                self.writer.resolve(connection, row, now_us, why=UNMUTED)
            else:
                silent.pop(row.assertion, None)
        for what, one in silent.items():
            details = one.details(self.writer.rule)
            made = self.writer.new(what, SILENT, "warning", now_us, note=one.sentence, details=details)
            self.writer.open(connection, made)


def _heard(came: NDArray[np.int64]) -> Bools:
    heard = np.zeros((int(came[-1]) - int(came[0])) // MINUTE_US + 1, dtype=np.bool_)
    heard[(came - came[0]) // MINUTE_US] = True
    return heard


def _lowest(came: NDArray[np.int64], since: int, stop: int) -> float:
    """Evidence of the rhythm that contradicts a silence least; 0.0 without a complete minute of it."""
    silent = (stop - since) // MINUTE_US
    if silent < 1:
        return 0.0
    heard = _heard(came)
    return min(_evidence(part, silent) for part in _rhythms(heard, int(came[0]), since, silent))


def _rhythms(heard: Bools, begin: int, since: int, silent: int) -> list[Bools]:
    """Minutes before: all, those of earlier days, and those of a week ago about the time of the silence."""
    minute = begin // MINUTE_US + np.arange(len(heard))
    middle = since // MINUTE_US + silent // 2
    near = max(_NEAR, silent // 2)
    away = np.abs((minute - middle + DAY // 2) % DAY - DAY // 2)
    same = heard[(away <= near) & (minute < middle - DAY // 2)]
    week = heard[np.abs(minute - middle + 7 * DAY) <= near]
    return [heard, *(each for each in (same, week) if len(each) >= _LEAST)]


def _evidence(heard: Bools, silent: int) -> float:
    empty, minutes, now = (np.array(float(n)) for n in ((~heard).sum(), len(heard), silent))
    return float(rise_evidence(empty, minutes, now, now, odds=_ODDS))
