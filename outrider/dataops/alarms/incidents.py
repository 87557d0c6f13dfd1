"""Incidents: alarms of one cause since one onset.

Each is announced once. What opens one: the first flag of a ``critical`` assertion, one incident for the
assertion however many slices follow; of ``warning`` assertions a proof that a share has risen, with a stated
chance of a false alarm (`rate_alarms`), one incident for each slice that explains it; of ``info``, nothing.
It is resolved by a person, by silence, or, of a ``warning``, once the share is what it was.

Of a live behavioral test (``warning`` or ``critical``) it is the proof that its failure rate is above its
tolerance. Silence proves nothing against that: it stands until another version or revision is looked at.

Silence itself is one too, where records or labels came in a rhythm; see `silence`.

Clocks have incidents: one per model whose records say that they were captured long after they came, over
by silence; and one of no model, of the service's own clock, over when that has been steady for an hour.

One more tells of records that state another version than the champion's; see `version_mismatch`.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, update

from outrider.dataops.flags.live_rates import Alarm, LiveRateView, proof
from outrider.dataops.flags.rate_limit import NewFlags
from outrider.dataops.flags.registered_assertions import suspensions
from outrider.dataops.ledger.minutes import MINUTE_US, minute_of, minutes_of
from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.state.clock import STEADY_S, Step
from outrider.dataops.state.tables import AssertionRow, Incident, table_of

from .explanation import cause_json, explained, page, records, sentence, us_of
from .minute_counts import ALL, MinuteCounts
from .rate_alarms import (
    MOST_CAUSES,
    AlarmRule,
    Cause,
    FlaggedShare,
    RateAlarm,
    Stream,
    Usual,
    causes,
    rate_alarms,
    why_over,
)
from .silence import SILENT, SilenceWatch
from .stored_incidents import PERSON, IncidentRow, resolve
from .version_mismatch import KEPT_US, LEAST_SHARE, StatedVersions, forget_versions, stated_versions

LIVE = "live_test"
FLAGS = "flags"
FLOOD = "flood"
"""Of an earlier release: further slices together; silence ends it."""
EVENT_TIME = "event_time"
CLOCK = "clock"
VERSION = "version_mismatch"
RULE = "rule"
_CLOCK_ID = "inc_clock_"
_INCIDENT = table_of(Incident)
_ASSERTION = table_of(AssertionRow)


@dataclass(slots=True)
class IncidentBook:
    """Incidents of one model, opened, followed and resolved.

    In the worker's transactions. Shares are decided about by complete minutes, so counts are read once in a
    minute; everything stands in the database.
    """

    model: str
    rule: AlarmRule
    targets: Sequence[WebhookTarget] = ()
    live: Mapping[str, str] = field(default_factory=dict)
    """Revision of each live test."""
    version: str | None = None
    """Champion; None where production alone has the model."""
    steps: Callable[[], Sequence[Step]] = lambda: ()
    """Every step of the service's clock that the journal knows."""
    _minute_us: int = -1
    """Minute in which alarms and stated versions were last looked at."""
    _changed_us: int | None = None
    """Earliest minute with new flags since the counts were read."""
    _minutes: dict[int, int] = field(default_factory=dict)
    """Minute of the last block before an assertion came."""
    _counts: MinuteCounts = field(init=False)
    _silence: SilenceWatch = field(init=False)

    def __post_init__(self) -> None:
        self._counts = MinuteCounts(self.model, 6 * self.rule.step)
        self._silence = SilenceWatch(self.model, self.rule)

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
        groups: dict[Stream, list[NewFlags]] = {}
        failures: Tally[str] = Tally()
        for new in found:
            self._changed_us = min(new.minute_us, self._changed_us or new.minute_us)
            if new.assertion in self.live:
                failures[new.assertion] += new.flags
            else:
                groups.setdefault((new.assertion, new.slice), []).append(new)
        rows = connection.execute(self._unresolved()).all()
        self._follow_live(connection, [row for row in rows if row.kind == LIVE], failures, alarms, now_us)
        self._follow_clocks(connection, rows, ahead, now_us, seq)
        standing = [row for row in rows if row.kind in (FLAGS, FLOOD)]
        self._follow_critical(
            connection, [row for row in standing if row.level == "critical"], groups, now_us
        )
        warnings = [row for row in standing if row.level != "critical"]
        self._extend(connection, warnings, groups, now_us)
        if minute_of(now_us) != self._minute_us:
            self._minute_us = minute_of(now_us)
            self._follow_versions(connection, [row for row in rows if row.kind == VERSION], now_us)
            self._counts.read(connection, now_us, changed_us=self._changed_us)
            self._changed_us = None
            self._follow_shares(connection, warnings, now_us)
            self._explain_again(connection, standing)
            self._follow_silence(connection, [row for row in rows if row.kind == SILENT], now_us)

    def _follow_critical(
        self,
        connection: Connection,
        rows: Sequence[Row[Any]],
        groups: Mapping[Stream, list[NewFlags]],
        now_us: int,
    ) -> None:
        """Open one incident per critical assertion, follow it, and end it by silence."""
        fired: dict[str, list[NewFlags]] = {}
        for (assertion, _), members in groups.items():
            if members[0].level == "critical":
                fired.setdefault(assertion, []).extend(members)
        for row in rows:
            new = fired.get(row.assertion)
            if new is None:
                if self._is_over(row, now_us):
                    self._resolve(connection, row, now_us, why=f"quiet for {self.rule.quiet_s:g} s")
            elif row.status == "muted" and row.muted_until_us <= now_us:
                # the silence that was asked for is over: what still fires is told anew
                self._resolve(connection, row, now_us, why="muted until then")
            else:
                del fired[row.assertion]
                self._add(connection, row, sum(one.flags for one in new), now_us)
        for assertion, new in sorted(fired.items()):
            self._open_critical(connection, assertion, new, now_us)

    def _open_critical(
        self, connection: Connection, assertion: str, new: Sequence[NewFlags], now_us: int
    ) -> None:
        flags: Tally[str] = Tally()
        for one in new:
            flags[one.slice] += one.flags
        told = [
            Cause(assertion, part, FlaggedShare(0, 0), FlaggedShare(count, count), 0.0)
            for part, count in flags.most_common(MOST_CAUSES)
        ]
        begin = min(one.minute_us for one in new)
        alarm = RateAlarm(assertion, ALL, 0.0, begin, begin, now_us)
        made = self._new(assertion, "", FLAGS, "critical", flags.total(), new[0].first_record, now_us)
        details = explained(connection, self.model, alarm, told, self.rule, version=self.version) | {
            "guarantee": None
        }
        # Counts of this unit are flags alone: shares come with the minute.
        details["before"] = details["now"] = None
        details["explained_by"] = [
            {"assertion": assertion, "slice": part, "flags": count}
            for part, count in flags.most_common(MOST_CAUSES)
        ]
        details["records"] = [new[0].first_record]
        self._tell(connection, replace(made, details=details), details)

    def _extend(
        self,
        connection: Connection,
        rows: Sequence[Row[Any]],
        groups: Mapping[Stream, list[NewFlags]],
        now_us: int,
    ) -> None:
        """Count the flags of open incidents of warnings."""
        for row in rows:
            members = {(one["assertion"], one["slice"]) for one in row.details.get("explained_by", ())}
            new = sum(
                one.flags
                for (assertion, part), found in groups.items()
                for one in found
                if (assertion, part) in members or (assertion, "") in members
            )
            if new:
                self._add(connection, row, new, now_us)

    def _add(self, connection: Connection, row: Row[Any], flags: int, now_us: int) -> None:
        # A judge that lags speaks of an earlier time.
        values = {"flags": _INCIDENT.c.flags + flags, "last_flag_us": max(now_us, row.last_flag_us)}
        connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == row.id).values(values))

    def _follow_shares(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        """Open incidents of shares that have risen, join those of one cause, end those that are over."""
        levels, begun = self._levels(connection), self._begun(connection, now_us)
        standing: list[Row[Any]] = []
        for row in rows:
            if row.status == "muted" and row.muted_until_us <= now_us:
                self._resolve(connection, row, now_us, why="muted until then")
            elif row.status != "muted" and (why := self._recovered(row, levels, begun, now_us)):
                self._resolve(connection, row, now_us, why=why)
            else:
                standing.append(row)
        warnings = [name for name, level in sorted(levels.items()) if level == "warning"]
        usual = self._usual(connection, begun)
        open_streams = {
            (one["assertion"], one["slice"] or ALL)
            for row in standing
            for one in row.details.get("explained_by", ())
        }
        open_streams |= {(name, ALL) for name, _ in open_streams}
        found = rate_alarms(self._counts, warnings, self.rule, usual=usual, standing=open_streams)
        if found:
            first = min(found, key=lambda alarm: (alarm.onset_us, -alarm.evidence))
            self._open_causes(connection, found, first, warnings, standing, usual, now_us)

    def _open_causes(
        self,
        connection: Connection,
        found: Sequence[RateAlarm],
        first: RateAlarm,
        warnings: Sequence[str],
        standing: Sequence[Row[Any]],
        usual: Usual,
        now_us: int,
    ) -> None:
        """One incident for each slice that explains the alarms, or for all records."""
        alarmed = {alarm.assertion for alarm in found}
        told = causes(self._counts, warnings, first, self.rule, usual=usual)
        parts = list(dict.fromkeys(one.slice for one in told if one.assertion in alarmed))
        if not parts or len(parts) > MOST_CAUSES:
            whole = [
                Cause(one.assertion, ALL, *self._shares(one, usual), one.evidence)
                for one in sorted(found, key=lambda one: -one.evidence)
            ]
            told, parts = [*whole, *told], [ALL]
        by_slice = {row.slice or ALL: row for row in standing}
        for part in parts:
            own = told if part == ALL else [one for one in told if one.slice == part]
            if part in by_slice:
                self._join(connection, by_slice[part], own)
                continue
            alarm = max(
                (one for one in found if one.slice == part), key=lambda one: one.evidence, default=first
            )
            self._open_cause(connection, alarm, own, now_us)

    def _shares(self, alarm: RateAlarm, usual: Usual) -> tuple[FlaggedShare, FlaggedShare]:
        at = self._counts.index(alarm.onset_us)
        hits, seen = usual.of(self._counts, (alarm.assertion, alarm.slice))
        return (
            FlaggedShare(int(hits[:at].sum()), int(seen[:at].sum())),
            FlaggedShare(int(hits[at:].sum()), int(seen[at:].sum())),
        )

    def _open_cause(
        self, connection: Connection, alarm: RateAlarm, told: Sequence[Cause], now_us: int
    ) -> None:
        part = "" if told[0].slice == ALL else told[0].slice
        flags = sum(one.now.hits for one in told)
        assertion = told[0].assertion
        ids = records(connection, self.model, assertion, told[0].slice)
        made = self._new(assertion, part, FLAGS, "warning", flags, ids[0] if ids else "", now_us)
        details = explained(connection, self.model, alarm, told, self.rule, version=self.version)
        self._tell(connection, replace(made, details=details, note=sentence(details)), details)

    def _join(self, connection: Connection, row: Row[Any], told: Sequence[Cause]) -> None:
        """Add causes to an open incident of the same slice."""
        known = [(one["assertion"], one["slice"]) for one in row.details["explained_by"]]
        fresh = [one for one in cause_json(told) if (one["assertion"], one["slice"]) not in known]
        details = row.details | {"explained_by": [*row.details["explained_by"], *fresh]}
        connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == row.id).values(details=details))

    def _explain_again(self, connection: Connection, rows: Sequence[Row[Any]]) -> None:
        """Rank the slices of open critical incidents by the minutes since."""
        for row in rows:
            if row.level != "critical":
                continue
            alarm = RateAlarm(row.assertion, ALL, 0.0, *(minute_of(row.opened_us),) * 3)
            told = causes(self._counts, [row.assertion], alarm, self.rule)
            if told:
                first = cause_json(told[:1])[0]
                details = row.details | {
                    "explained_by": cause_json(told),
                    "before": first["before"],
                    "now": first["now"],
                    "records": records(connection, self.model, row.assertion, told[0].slice),
                }
                connection.execute(update(_INCIDENT).where(_INCIDENT.c.id == row.id).values(details=details))

    def _recovered(
        self, row: Row[Any], levels: Mapping[str, str], begun: Mapping[str, int], now_us: int
    ) -> str:
        """Reason that an incident of a warning is over; empty while it stands."""
        if row.kind != FLAGS or not row.details.get("now"):  # of an earlier release
            return f"quiet for {self.rule.quiet_s:g} s" if self._is_over(row, now_us) else ""
        if now_us - row.opened_us < self.rule.quiet_s * 1e6:
            return ""
        judging = [one for one in row.details["explained_by"] if levels.get(one["assertion"]) == "warning"]
        if not judging:
            return f"{row.assertion} is no assertion of level warning any more"
        first = judging[0]
        if begun.get(first["assertion"], 0) > now_us - self.rule.quiet_s * 1e6:
            return ""  # suspended: what does not judge says nothing
        stream = first["assertion"], first["slice"] or ALL
        before, now = (first[when]["share"] for when in ("before", "now"))
        most = max(before, first["before"]["high"])
        return why_over(self._counts, stream, before, now, self.rule, most=most, since_us=row.opened_us)

    def _levels(self, connection: Connection) -> dict[str, str]:
        """Level of each active assertion, live tests left out."""
        own = _ASSERTION.c.model == self.model, _ASSERTION.c.active, _ASSERTION.c.kind == "assertion"
        rows = connection.execute(select(_ASSERTION.c.name, _ASSERTION.c.level).where(*own))
        return dict(map(tuple, rows))

    def _usual(self, connection: Connection, begun: Mapping[str, int]) -> Usual:
        """Minutes that say what is usual. What a person resolved is a new normal."""
        since: dict[Stream, int] = {}
        left_out: dict[Stream, list[tuple[int, int]]] = {}
        own = _INCIDENT.c.model == self.model, _INCIDENT.c.kind == FLAGS, _INCIDENT.c.level == "warning"
        ended = _INCIDENT.c.resolved_us > self._counts.start_us
        for row in connection.execute(select(_INCIDENT).where(*own, ended)):
            for one in row.details.get("explained_by", ()):
                for stream in {(one["assertion"], one["slice"] or ALL), (one["assertion"], ALL)}:
                    if row.details.get("ended_by") == PERSON:
                        since[stream] = max(since.get(stream, 0), row.resolved_us)
                    else:
                        begin = us_of(row.details["onset"]["first"])
                        left_out.setdefault(stream, []).append((begin, row.resolved_us))
        return Usual(begun, since, left_out)

    def _begun(self, connection: Connection, now_us: int) -> dict[str, int]:
        """Time since which each assertion judges: from its first block on, behind its last suspension."""
        names = select(_ASSERTION.c.name, func.min(_ASSERTION.c.first_seq).label("seq"))
        names = names.where(_ASSERTION.c.model == self.model, _ASSERTION.c.kind == "assertion")
        begun: dict[str, int] = {}
        for name, seq in connection.execute(names.group_by(_ASSERTION.c.name)):
            if seq and seq not in self._minutes:
                self._minutes[seq] = minutes_of(connection, self.model, [seq]).get(seq, 0)
            minute = self._minutes.get(seq, 0)
            begun[name] = minute + MINUTE_US if minute < now_us else 0  # the clock was set back since
        for one in suspensions(connection, self.model):
            begun[one.assertion] = max(begun.get(one.assertion, 0), one.until_us)
        return begun

    def _follow_silence(self, connection: Connection, rows: Sequence[Row[Any]], now_us: int) -> None:
        silent = {one.what: one for one in self._silence.look(connection, now_us)}
        for row in rows:
            if self._silence.has_come(connection, row.assertion, since_us=row.opened_us, now_us=now_us):
                self._resolve(connection, row, now_us, why=f"{row.assertion} come again")
            elif row.status == "muted" and row.muted_until_us <= now_us:
                self._resolve(connection, row, now_us, why="muted until then")
            else:
                silent.pop(row.assertion, None)
        for what, one in silent.items():
            made = self._new(what, "", SILENT, "warning", 0, "", now_us, one.sentence)
            details = one.details(self.rule) | {"page": page(self.model, "")}
            self._tell(connection, replace(made, details=details), details)

    def settle(self, connection: Connection, *, now_us: int, seq: int = 0) -> None:
        """Let time pass: resolve incidents that are over, and hear silence. By receive time."""
        self.follow(connection, (), now_us=now_us, seq=seq)

    def is_due(self, connection: Connection, *, now_us: int, seq: int = 0) -> bool:
        """True where :meth:`settle` may change anything. Asked without taking the write lock."""
        if minute_of(now_us) != self._minute_us:
            return True
        rows = connection.execute(self._unresolved()).all()
        return any(
            self._refuted(connection, row) is not None
            if row.kind == LIVE
            else self._is_steady(row, now_us, seq)
            if row.kind == CLOCK
            else self._is_over(row, now_us)
            for row in rows
            if row.kind in (LIVE, CLOCK, EVENT_TIME) or (row.kind == FLAGS and row.level == "critical")
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
            flags=flags, level=level, first_record=record, note=note, details={},
        )  # fmt: skip

    def _tell(self, connection: Connection, row: IncidentRow, more: Mapping[str, object]) -> None:
        values = asdict(row)
        connection.execute(insert(_INCIDENT), [values])
        names = ("id", "model", "assertion", "slice", "level", "first_record")
        told = {name: values[name] for name in names} | dict(more)
        enqueue(connection, "incident.opened", told, targets=self.targets, now_us=row.opened_us)

    def _resolve(self, connection: Connection, row: Row[Any], now_us: int, *, why: str) -> None:
        resolve(connection, row.id, now_us=now_us, why=why, targets=self.targets, by=RULE)


def _opened_at(incident: str) -> int:
    """Border with which an incident of the service's clock began."""
    return int(incident.removeprefix(_CLOCK_ID))
