"""Incidents: flags of one assertion and slice since one onset.

Each is announced once. An assertion that fires a little all the time is no news. What opens an incident: the
first flag of a ``critical`` assertion; of a ``warning``, enough flags within a window and a share of the
records well above what was usual before; of ``info``, nothing. It is resolved by a person, or by silence.

Of a live behavioral test (``warning`` or ``critical``) it is the proof that its failure rate is above its
tolerance. Silence proves nothing against that: it stands until another version or revision is looked at.

Of one model so many open within an hour, and the first of each assertion: further onsets, such as of slices
that a sender invents, are one more incident together.

Clocks have incidents too: one per model whose records say that they were captured long after they came, over
by silence; and one of no model, of the service's own clock, over when that has been steady for an hour.

One more tells of records that state another version than the champion's; see `version_mismatch`.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, insert, select, update

from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.state.clock import STEADY_S, Step
from outrider.dataops.state.tables import FlagCount, Incident, RecordCount, table_of

from .live_rates import Alarm, LiveRateView, proof
from .rate_limit import NewFlags
from .stored_incidents import IncidentRow, resolve
from .version_mismatch import KEPT_US, LEAST_SHARE, StatedVersions, forget_versions, stated_versions

CHAMPION = "champion"
LIVE = "live_test"
FLOOD = "flood"
EVENT_TIME = "event_time"
CLOCK = "clock"
VERSION = "version_mismatch"
_CLOCK_ID = "inc_clock_"
_HOUR_US = 3_600_000_000
MOST_FOLDED, MOST_LOOKED = 100, 500
"""Onsets in one unit from which all the rest is a flood; warnings, the largest first, that are held against
what is usual in it: a sender who invents slices must not hold up the worker."""
_INCIDENT = table_of(Incident)
_FLAGS = table_of(FlagCount)
_RECORDS = table_of(RecordCount)


@dataclass(frozen=True, slots=True)
class IncidentRule:
    """Onset and end of an incident; see ``[flags]`` in the configuration."""

    flags: int = 10
    factor: float = 3.0
    window_s: float = 300.0
    baseline_s: float = 86_400.0
    quiet_s: float = 900.0
    per_hour: int = 20


@dataclass(frozen=True, slots=True)
class Figures:
    """Flags and records of a slice, within some time.

    The flags are those of one assertion.
    """

    flags: int
    records: int

    @property
    def share(self) -> float:
        """Flags per record; 0.0 without records."""
        return self.flags / self.records if self.records else 0.0


def is_onset(level: str, now: Figures, usual: Figures, rule: IncidentRule) -> bool:
    """Test for an onset: flags beyond the usual.

    Parameters
    ----------
    now, usual
        Figures of the window that ends now, and of the time before it. Without records before, any share is
        unusual.

    Examples
    --------
    >>> is_onset("warning", Figures(12, 100), Figures(10, 1000), IncidentRule())
    True
    >>> is_onset("warning", Figures(12, 1000), Figures(10, 1000), IncidentRule())
    False
    >>> is_onset("critical", Figures(1, 1000), Figures(10, 1000), IncidentRule())
    True
    """
    if level != "warning":
        return level == "critical" and now.flags > 0
    return now.flags >= rule.flags and now.share > rule.factor * usual.share


@dataclass(slots=True)
class _Onsets:
    """Onsets of one unit: the flags around them, and those that have no incident of their own."""

    recent: Mapping[tuple[str, str], Figures]
    opened: Tally[str] | None = None
    """Incidents of the last hour by assertion, once there is an onset."""
    folded: list[tuple[NewFlags, int]] = field(default_factory=list)
    looked: int = 0


@dataclass(slots=True)
class IncidentBook:
    """Incidents of one model, opened, followed and resolved.

    In the worker's transactions. What is usual changes by the minute only, so it is read once in a minute;
    everything else stands in the database.
    """

    model: str
    rule: IncidentRule
    targets: Sequence[WebhookTarget] = ()
    live: Mapping[str, str] = field(default_factory=dict)
    """Revision of each live test."""
    version: str | None = None
    """Champion; None where production alone has the model."""
    steps: Callable[[], Sequence[Step]] = lambda: ()
    """Every step of the service's clock that the journal knows."""
    _usual: dict[tuple[str, str, int], Figures] = field(default_factory=dict)
    _versions_us: int = -1
    """Minute in which stated versions were last looked at."""

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
        """Add flags and alarms of a committed unit; resolve ended incidents.

        The unit is one of the champion.

        Parameters
        ----------
        ahead
            Records of the unit whose event time was too far ahead of receipt.
        seq
            Last block of the unit.
        """
        groups: dict[tuple[str, str], list[NewFlags]] = {}
        failures: Tally[str] = Tally()
        for new in found:
            if new.assertion in self.live:
                failures[new.assertion] += new.flags
            else:
                groups.setdefault((new.assertion, new.slice), []).append(new)
        rows = connection.execute(self._unresolved()).all()
        self._follow_live(connection, [row for row in rows if row.kind == LIVE], failures, alarms, now_us)
        self._follow_clocks(connection, rows, ahead, now_us, seq)
        if minute_of(now_us) != self._versions_us:
            self._versions_us = minute_of(now_us)
            self._follow_versions(connection, [row for row in rows if row.kind == VERSION], now_us)
        onsets = _Onsets(self._recent(connection, groups, now_us))
        unresolved = {(row.assertion, row.slice): row for row in rows if row.kind == "flags"}
        quiet = self._follow_flags(connection, groups, unresolved, onsets, now_us)
        flood = self._fold(connection, [row for row in rows if row.kind == FLOOD], onsets.folded, now_us)
        for row in [*quiet, *flood]:
            if self._is_over(row, now_us):
                self._resolve(connection, row, now_us, why=f"quiet for {self.rule.quiet_s:g} s")

    def _follow_flags(
        self,
        connection: Connection,
        groups: Mapping[tuple[str, str], list[NewFlags]],
        unresolved: dict[tuple[str, str], Any],
        onsets: "_Onsets",
        now_us: int,
    ) -> list[Any]:
        """Open incidents of these flags or extend them; those that may have ended."""
        extended: list[dict[str, object]] = []
        sums = {key: sum(new.flags for new in members) for key, members in groups.items()}
        for key in sorted(groups, key=lambda key: -sums[key]):
            members, flags = groups[key], sums[key]
            row = unresolved.pop(key, None)
            if row is None:
                self._open(connection, members, flags, onsets, now_us)
            elif row.status != "muted" or row.muted_until_us > now_us:
                alive = row.status == "muted" or self._is_news(
                    connection, members[0], onsets.recent, now_us, before_us=row.opened_us
                )
                # A judge that lags speaks of an earlier time.
                last_us = max(now_us, row.last_flag_us) if alive else row.last_flag_us
                extended.append({"one": row.id, "more": flags, "at": last_us})
                if not alive:
                    unresolved[key] = row
            else:  # the silence that was asked for is over: what still fires is told anew
                self._resolve(connection, row, now_us, why="muted until then")
                self._open(connection, members, flags, onsets, now_us)
        if extended:
            connection.execute(
                update(_INCIDENT)
                .where(_INCIDENT.c.id == bindparam("one"))
                .values(flags=_INCIDENT.c.flags + bindparam("more"), last_flag_us=bindparam("at")),
                extended,
            )
        return list(unresolved.values())

    def settle(self, connection: Connection, *, now_us: int, seq: int = 0) -> None:
        """Resolve the incidents that have been quiet for long enough. By receive time."""
        self.follow(connection, (), now_us=now_us, seq=seq)

    def is_due(self, connection: Connection, *, now_us: int, seq: int = 0) -> bool:
        """True where :meth:`settle` would change anything. Asked without taking the write lock."""
        rows = connection.execute(self._unresolved()).all()
        return any(
            self._refuted(connection, row) is not None
            if row.kind == LIVE
            else self._is_steady(row, now_us, seq)
            if row.kind == CLOCK
            else minute_of(now_us) != self._versions_us
            if row.kind == VERSION
            else self._is_over(row, now_us)
            for row in rows
        )

    def step(self, connection: Connection, *, by_us: int, seq: int) -> None:
        """Shift open incidents over a step of the clock.

        The clock was set ``by_us`` at block ``seq``. What is not over yet lasts as long as it would have; the
        border is told once for all models.
        """
        forget_versions(connection, self.model)
        own = (_INCIDENT.c.model == self.model) & (_INCIDENT.c.status != "resolved")
        connection.execute(update(_INCIDENT).where(own).values(last_flag_us=_INCIDENT.c.last_flag_us + by_us))
        muted = own & (_INCIDENT.c.muted_until_us > 0)
        connection.execute(
            update(_INCIDENT).where(muted).values(muted_until_us=_INCIDENT.c.muted_until_us + by_us)
        )
        steps = [step for step in self.steps() if step.seq <= seq]
        if not steps:
            return
        row: Row[Any] | None = None
        for known in connection.execute(select(_INCIDENT).where(_INCIDENT.c.kind == CLOCK)):
            if sum(step.seq >= _opened_at(known.id) for step in steps) <= known.flags:
                return  # another model was here first
            row = known if known.status != "resolved" else row
        newest = steps[-1]
        way = "forward" if newest.by_us > 0 else "back"
        note = (
            f"the clock of the service was set {way} by {abs(newest.by_us) / 1e6:.0f} s: windows began anew "
            "there, and nothing expires until it has been steady for an hour"
        )
        if row is None:
            new = self._new("service clock", "", CLOCK, "warning", 1, "", newest.received_us, note)
            new = replace(new, id=f"{_CLOCK_ID}{newest.seq}", model="")
            self._tell(connection, new, {"set_by_s": newest.by_us / 1e6})
            return
        flags = sum(step.seq >= _opened_at(row.id) for step in steps)
        values = {"flags": flags, "last_flag_us": newest.received_us, "note": note}
        connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == row.id).values(values))

    def _follow_clocks(
        self, connection: Connection, rows: Sequence[Row[Any]], ahead: int, now_us: int, seq: int
    ) -> None:
        standing: Row[Any] | None = None
        for row in rows:
            if row.kind == CLOCK and self._is_steady(row, now_us, seq):
                self._resolve(connection, row, now_us, why="steady for an hour")
            elif row.kind == EVENT_TIME:
                is_silenced = row.status == "muted" and row.muted_until_us <= now_us
                if self._is_over(row, now_us) or (ahead and is_silenced):
                    why = "muted until then" if is_silenced else f"quiet for {self.rule.quiet_s:g} s"
                    self._resolve(connection, row, now_us, why=why)
                else:
                    standing = row
        if not ahead:
            return
        if standing is None:
            note = "event times far ahead of receipt; windows take the time of receipt for them"
            new = self._new("event time", "", EVENT_TIME, "warning", ahead, "", now_us, note)
            self._tell(connection, new, {})
            return
        values = {"flags": standing.flags + ahead, "last_flag_us": max(now_us, standing.last_flag_us)}
        connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == standing.id).values(values))

    def _follow_versions(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        found = stated_versions(connection, self.model, now_us=now_us)
        standing = False
        for row in rows:
            is_silenced = row.status == "muted" and row.muted_until_us <= now_us
            if why := self._mismatch_ended(row, found, now_us) or ("muted until then" if is_silenced else ""):
                self._resolve(connection, row, now_us, why=why)
            elif found is not None:
                standing = True
                last_us = now_us if found.share >= LEAST_SHARE else row.last_flag_us
                values = {
                    "flags": max(row.flags, found.others),
                    "last_flag_us": max(last_us, row.last_flag_us),
                }
                connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == row.id).values(values))
        if found is not None and not standing and found.is_lasting(now_us):
            note = found.sentence
            new = self._new("version mismatch", "", VERSION, "warning", found.others, "", now_us, note)
            self._tell(connection, new, {"champion": found.champion, "versions": found.by_version})
        forget_versions(connection, self.model, before_us=now_us - KEPT_US)

    def _mismatch_ended(self, row: Row[Any], found: StatedVersions | None, now_us: int) -> str:
        """Reason that records state the champion's version again; empty while they do not."""
        if found is None:
            return "there is no champion any more"
        if row.opened_us < found.changed_us <= now_us:
            return f"version {found.champion} became champion"
        if found.records:
            return f"records state version {found.champion}" if found.share < LEAST_SHARE else ""
        return f"quiet for {self.rule.quiet_s:g} s" if self._is_over(row, now_us) else ""

    def _is_steady(self, row: Row[Any], now_us: int, seq: int) -> bool:
        """True where the clock has run for an hour behind its last step, and this model has passed that."""
        steps = self.steps()
        if any(step.seq >= seq for step in steps) or row.muted_until_us > now_us:
            return False
        return bool(row.last_flag_us < now_us - int(STEADY_S * 1e6))

    def _follow_live(
        self,
        connection: Connection,
        rows: Sequence[Row[Any]],
        failures: Mapping[str, int],
        alarms: Sequence[Alarm],
        now_us: int,
    ) -> None:
        standing = set()
        for row in rows:
            new = failures.get(row.assertion, 0)
            if (why := self._refuted(connection, row)) is not None:
                self._resolve(connection, row, now_us, why=why)
            elif new and row.status == "muted" and row.muted_until_us <= now_us:
                self._resolve(connection, row, now_us, why="muted until then")
                view = self._proof(connection, row.assertion)
                assert view is not None  # or it would be refuted
                self._open_live(connection, Alarm(view, row.level, row.first_record, view.failed), now_us)
            elif new:
                standing.add(row.assertion)
                values = {"flags": row.flags + new, "last_flag_us": max(now_us, row.last_flag_us)}
                connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == row.id).values(values))
            else:
                standing.add(row.assertion)
        for alarm in alarms:
            if alarm.level != "info" and alarm.view.test not in standing:
                self._open_live(connection, alarm, alarm.view.alarm_us or now_us)

    def _proof(self, connection: Connection, test: str) -> LiveRateView | None:
        return proof(connection, self.model, test, self.live[test], self.version)

    def _refuted(self, connection: Connection, row: Row[Any]) -> str | None:
        """Reason that a live test's alarm is refuted; None while the alarm stands."""
        if row.assertion not in self.live:
            return "it is no live test any more"
        if self._proof(connection, row.assertion) is None:
            about = "the version" if self.version is None else f"version {self.version}"
            return f"{about} that is asked now, or this revision of the test, has not been proven to fail"
        return None

    def _open_live(self, connection: Connection, alarm: Alarm, now_us: int) -> None:
        view = alarm.view
        note = (
            f"version {view.version or '?'} fails {view.failed} of {view.asked} live questions, "
            f"{view.rate:.2%} by weight and at least {view.low:.2%}; {view.tolerance:.2%} are tolerated"
        )
        row = self._new(view.test, "", LIVE, alarm.level, alarm.failures, alarm.record, now_us, note)
        figures = {name: getattr(view, name) for name in ("version", "rate", "low", "high", "tolerance")}
        self._tell(connection, row, figures)

    def _unresolved(self) -> Select[Any]:
        alive = _INCIDENT.c.status.in_(("open", "acknowledged", "muted"))
        return select(_INCIDENT).where(_INCIDENT.c.model.in_((self.model, "")), alive)

    def _is_over(self, row: Row[Any], now_us: int) -> bool:
        quiet_us = int(self.rule.quiet_s * 1e6)
        return bool(row.last_flag_us < now_us - quiet_us and row.muted_until_us <= now_us)

    def _recent(
        self, connection: Connection, groups: Mapping[tuple[str, str], Sequence[NewFlags]], now_us: int
    ) -> dict[tuple[str, str], Figures]:
        """Figures of warnings within the window, by assertion and slice; only those with flags enough."""
        names = sorted({name for (name, _), members in groups.items() if members[0].level == "warning"})
        start, stop = self._start_us(now_us), minute_of(now_us) + MINUTE_US
        if not names:
            return {}
        flags = func.sum(_FLAGS.c.flags).label("flags")
        many = connection.execute(
            select(_FLAGS.c.assertion, _FLAGS.c.slice, flags)
            .where(
                _FLAGS.c.model == self.model,
                _FLAGS.c.slot == CHAMPION,
                _FLAGS.c.assertion.in_(names),
                _FLAGS.c.minute_us >= start,
                _FLAGS.c.minute_us < stop,
            )
            .group_by(_FLAGS.c.assertion, _FLAGS.c.slice)
            .having(flags >= self.rule.flags)
        ).all()
        if not many:
            return {}
        own = (_RECORDS.c.model == self.model, _RECORDS.c.minute_us >= start, _RECORDS.c.minute_us < stop)
        query = select(_RECORDS.c.slice, func.sum(_RECORDS.c.records)).where(*own).group_by(_RECORDS.c.slice)
        records = dict(map(tuple, connection.execute(query)))
        return {
            (row.assertion, row.slice): Figures(int(row.flags), records.get(row.slice, 0)) for row in many
        }

    def _start_us(self, now_us: int) -> int:
        """First minute of the window that ends now."""
        return minute_of(now_us) - (max(1, round(self.rule.window_s * 1e6 / MINUTE_US)) - 1) * MINUTE_US

    def _open(
        self,
        connection: Connection,
        members: Sequence[NewFlags],
        flags: int,
        onsets: _Onsets,
        now_us: int,
    ) -> None:
        first = members[0]
        is_flood = len(onsets.folded) >= MOST_FOLDED and first.assertion in (onsets.opened or ())
        if not is_flood:
            onsets.looked += first.level == "warning"
            if onsets.looked > MOST_LOOKED or not self._is_news(connection, first, onsets.recent, now_us):
                return
        if (opened := onsets.opened) is None:
            opened = onsets.opened = self._opened_since(connection, now_us - _HOUR_US)
        if opened.total() >= self.rule.per_hour and opened[first.assertion]:
            onsets.folded.append((first, flags))
            return
        opened[first.assertion] += 1
        row = self._new(first.assertion, first.slice, "flags", first.level, flags, first.first_record, now_us)
        self._tell(connection, row, {})

    def _opened_since(self, connection: Connection, start_us: int) -> Tally[str]:
        own = (_INCIDENT.c.model == self.model) & (_INCIDENT.c.kind == "flags")
        query = select(_INCIDENT.c.assertion, func.count()).where(own, _INCIDENT.c.opened_us > start_us)
        found = connection.execute(query.group_by(_INCIDENT.c.assertion)).all()
        return Tally(dict(map(tuple, found)))

    def _fold(
        self,
        connection: Connection,
        rows: Sequence[Row[Any]],
        folded: Sequence[tuple[NewFlags, int]],
        now_us: int,
    ) -> Sequence[Row[Any]]:
        """Make one incident of onsets that have none of their own; ``rows`` where it may be over."""
        if not folded:
            return rows
        flags = sum(count for _, count in folded)
        level = "critical" if any(new.level == "critical" for new, _ in folded) else "warning"
        alive = [row for row in rows if row.status != "muted" or row.muted_until_us > now_us]
        for row in rows:
            if row not in alive:
                self._resolve(connection, row, now_us, why="muted until then")
        if alive:
            values = {"flags": alive[0].flags + flags, "last_flag_us": max(now_us, alive[0].last_flag_us)}
            values |= {"level": level} if level == "critical" else {}
            connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == alive[0].id).values(values))
            return ()
        names = ", ".join(sorted({new.assertion for new, _ in folded}))
        first = folded[0][0]
        note = (
            f"more than {self.rule.per_hour} incidents within an hour: further ones of {names} are told here "
            f"together, from slice {first.slice!r} on"
        )
        made = self._new("further slices", "", FLOOD, level, flags, first.first_record, now_us, note)
        self._tell(connection, made, {"note": note})
        return ()

    def _new(
        self,
        assertion: str,
        part: str,
        kind: str,
        level: str,
        flags: int,
        record: str,
        now_us: int,
        note: str = "",
    ) -> IncidentRow:
        text = "\0".join((self.model, assertion, part, str(now_us)))
        identity = f"inc_{blake2b(text.encode(), digest_size=12).hexdigest()}"
        return IncidentRow(
            id=identity, model=self.model, assertion=assertion, slice=part, kind=kind, status="open",
            opened_us=now_us, last_flag_us=now_us, muted_until_us=0, resolved_us=None,
            flags=flags, level=level, first_record=record, note=note,
        )  # fmt: skip

    def _tell(self, connection: Connection, row: IncidentRow, more: Mapping[str, object]) -> None:
        values = asdict(row)
        connection.execute(insert(_INCIDENT), [values])
        names = ("id", "model", "assertion", "slice", "level", "first_record")
        told = {name: values[name] for name in names} | dict(more)
        enqueue(connection, "incident.opened", told, targets=self.targets, now_us=row.opened_us)

    def _resolve(self, connection: Connection, row: Row[Any], now_us: int, *, why: str) -> None:
        resolve(connection, row.id, now_us=now_us, why=why, targets=self.targets)

    def _is_news(
        self,
        connection: Connection,
        new: NewFlags,
        recent: Mapping[tuple[str, str], Figures],
        now_us: int,
        *,
        before_us: int | None = None,
    ) -> bool:
        """``before_us``: onset of the incident that the flags may keep open; the usual lies before it."""
        if new.level != "warning":
            return new.level == "critical"
        now = recent.get((new.assertion, new.slice))
        if now is None:
            return False
        start = self._start_us(now_us)
        usual = self._usually(
            connection, new, start if before_us is None else min(start, minute_of(before_us))
        )
        if not usual.records and before_us is not None:  # it fired from the first record on
            usual = self._usually(connection, new, start)
        return is_onset(new.level, now, usual, self.rule)

    def _usually(self, connection: Connection, new: NewFlags, until: int) -> Figures:
        key = (new.assertion, new.slice, until)
        known = self._usual.get(key)
        if known is None:
            since = until - int(self.rule.baseline_s * 1e6)
            figures = _figures(connection, self.model, new.assertion, new.slice, since, until)
            if len(self._usual) > 1000:
                self._usual.clear()
            known = self._usual[key] = figures
        return known


def _opened_at(incident: str) -> int:
    """Border with which an incident of the service's clock began."""
    return int(incident.removeprefix(_CLOCK_ID))


def _figures(
    connection: Connection, model: str, assertion: str, part: str, start_us: int, stop_us: int
) -> Figures:
    flags = connection.scalar(
        select(func.sum(_FLAGS.c.flags)).where(
            _FLAGS.c.model == model,
            _FLAGS.c.slot == CHAMPION,
            _FLAGS.c.assertion == assertion,
            _FLAGS.c.minute_us >= start_us,
            _FLAGS.c.minute_us < stop_us,
            _FLAGS.c.slice == part,
        )
    )
    return Figures(int(flags or 0), _records(connection, model, part, start_us, stop_us))


def _records(connection: Connection, model: str, part: str, start_us: int, stop_us: int) -> int:
    records = connection.scalar(
        select(func.sum(_RECORDS.c.records)).where(
            _RECORDS.c.model == model,
            _RECORDS.c.slice == part,
            _RECORDS.c.minute_us >= start_us,
            _RECORDS.c.minute_us < stop_us,
        )
    )
    return int(records or 0)
