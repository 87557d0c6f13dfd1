"""Watched streams of a model, each with its distance from an alarm."""

import math
import threading
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select
from typing_extensions import TypedDict

from outrider.assertions.statistics.wilson import wilson_interval
from outrider.assertions.times import utc_text
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.live_incidents import LIVE
from outrider.dataops.alarms.loss_alarms import LOSS, RARE, lost_until_alarm
from outrider.dataops.alarms.minute_counts import ALL, OF_VERSION, MinuteCounts
from outrider.dataops.alarms.past_hours import StoredHours
from outrider.dataops.alarms.performance import PERFORMANCE
from outrider.dataops.alarms.rate_alarms import (
    AlarmRule,
    FlaggedShare,
    StreamLook,
    smallest_shares,
    stream_looks,
)
from outrider.dataops.alarms.silence import SILENT, WHAT, SilenceEvidence, SilenceWatch
from outrider.dataops.alarms.stored_incidents import list_incidents
from outrider.dataops.alarms.version_losses import judged_version, read_losses
from outrider.dataops.alarms.watched_streams import FLAGS, WatchedStreams
from outrider.dataops.flags.live_rates import LiveRateView, current_rates
from outrider.dataops.flags.registered_assertions import suspensions
from outrider.dataops.ledger.minutes import MINUTE_US, minute_of
from outrider.dataops.models import registry
from outrider.dataops.state.tables import AssertionRow, table_of
from outrider.errors import NotFound
from outrider.monitor.http.declared import FieldsOf, Time
from outrider.monitor.queries.queries import list_models
from outrider.monitor.views.service import Service

StreamStatus: TypeAlias = Literal["standing", "muted", "watched", "too_few", "suspended"]
STATUSES: tuple[StreamStatus, ...] = ("standing", "muted", "watched", "suspended", "too_few")
ALIVE = ("open", "acknowledged")
"""Status of incidents that stand; what is muted is known."""
MOST_INCIDENTS = 1_000
NEAR = 0.005
"""Nearness that is told, for it is shown as one per cent at least."""
LEAST_ODDS = 0.01
"""Evidence that is told at all: nearness begins there."""
AGAIN_US = 3_600_000_000
"""Time whose counts are read again: windows may flag earlier minutes."""
MOST_HOURS = 100_000
"""Hours with counts that are kept, of all assertions and slices of all models: 350 bytes each."""
MOST_FINE = 100
"""Streams of which evidence under 1 : 1 is worth its time."""
_LARGEST = 1e300
"""Odds that a number of JSON holds."""
_ASSERTION = table_of(AssertionRow)


class StreamShare(TypedDict):
    """Share of entities with flags, with its 95 % interval."""

    share: float
    low: float
    high: float
    flagged: int
    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedStream:
    """Stream of counts with its distance from an alarm.

    Attributes
    ----------
    slice, version
        None for all records.
    before, now
        The reference up to an hour ago, and the last hour. Of a stream that an incident is about, its share
        before, and its share now.
    evidence, needed
        Odds to 1: fortunes of bets on a change, which began at 1; None for evidence under 1 : 100.
    nearness
        Share of the way from 1 : 100 to what is needed, in logarithms, in [0, 1].
    alpha
        Chance of a false alarm that the stream may spend.
    smallest_share
        Smallest that an hour at the present volume proves with a chance of 90 %; None for none.
    incident
        The one that stands about it.
    """

    kind: str
    name: str
    slice: str | None = None
    version: str | None = None
    level: str
    status: StreamStatus = "watched"
    before: StreamShare | None = None
    now: StreamShare | None = None
    evidence: float | None = None
    needed: float | None = None
    nearness: float = 0.0
    alpha: float | None = None
    smallest_share: float | None = None
    incident: str | None = None
    text: str = ""


AlarmStream: TypeAlias = Annotated[dict[str, Any], FieldsOf(WatchedStream, "AlarmStream")]


class AlarmReport(TypedDict):
    """Watched streams of a model, the nearest to an alarm first.

    ``until`` is the end of the last complete minute. ``statuses`` counts all streams, ``standing`` the
    incidents that are open or acknowledged.
    """

    model: str
    until: Time
    alpha: float
    horizon_s: float
    sentence: str
    standing: int
    statuses: dict[StreamStatus, int]
    streams: list[AlarmStream]


class AlarmReader:
    """Reads of watched streams.

    Decided anew once a minute, and when the usual minutes change.
    """

    def __init__(self, service: Service) -> None:
        self._engine, self._rule = service.engine, service.alarm_rule
        self._models = tuple(service.settings.models)
        self._counts: dict[str, MinuteCounts] = {}
        self._known: dict[str, _Looks] = {}
        self._lock = threading.Lock()

    def read(self, model: str, *, now_us: int, limit: int | None = None) -> AlarmReport:
        """Streams of a model, the nearest to an alarm first.

        Raises
        ------
        NotFound
            If the model is not configured and has no records.
        """
        if model not in list_models(self._engine, self._models):
            raise NotFound(f"there is no model {model!r}; `outrider fleet` lists them")
        with self._engine.connect() as connection:
            incidents = list_incidents(
                connection, now_us=now_us, model=model, status="current", limit=MOST_INCIDENTS
            )
            rows = self._rows(connection, model, now_us) if model in self._models else []
        streams = sorted(_with_incidents(rows, incidents), key=_order)
        statuses = Tally(stream.status for stream in streams)
        standing = sum(row.status in ALIVE for row in incidents)
        return {
            "model": model,
            "until": utc_text(minute_of(now_us)),
            "alpha": self._rule.alpha,
            "horizon_s": self._rule.horizon_s,
            "sentence": _sentence(streams, standing, is_judged=model in self._models),
            "standing": standing,
            "statuses": {status: statuses[status] for status in STATUSES if statuses[status]},
            "streams": [asdict(stream) for stream in streams[:limit]],
        }

    def _rows(self, connection: Connection, model: str, now_us: int) -> list[WatchedStream]:
        with self._lock:
            looks = self._looks(connection, model, now_us)
        rows = [*_flag_streams(looks), *self._others(connection, model, now_us)]
        resting = {one.assertion for one in suspensions(connection, model) if one.until_us > now_us}
        return [_rested(row) if row.kind != SILENT and row.name in resting else row for row in rows]

    def _looks(self, connection: Connection, model: str, now_us: int) -> "_Looks":
        """Looks behind the last complete minute, by the rule that opens incidents."""
        watched = WatchedStreams(model)
        counts = self._counts.pop(model, None) or MinuteCounts(model, self._rule.minutes)
        self._counts[model] = counts  # the last one used
        begun = watched.begun(connection, now_us)
        usual = watched.usual(connection, begun, since_us=minute_of(now_us) - counts.minutes * MINUTE_US)
        levels = watched.levels(connection)
        key = minute_of(now_us), levels, usual
        known = self._known.get(model)
        if known is None or known.key != key:
            counts.read(connection, now_us, changed_us=minute_of(now_us) - AGAIN_US)
            warnings = [name for name, level in sorted(levels.items()) if level == "warning"]
            is_fine = len(warnings) * (1 + len(counts.slices())) <= MOST_FINE
            least = math.log(LEAST_ODDS) if is_fine else 0.0
            past = StoredHours(model).at(connection, counts)
            looks = stream_looks(counts, warnings, self._rule, usual=usual, past=past, least=least)
            known = self._known[model] = _Looks(key, looks, smallest_shares(looks, self._rule))
        while sum(one.rows.hours for one in self._counts.values()) > MOST_HOURS:
            self._counts.pop(next(iter(self._counts)))
        return known

    def _others(self, connection: Connection, model: str, now_us: int) -> Iterator[WatchedStream]:
        """Streams that are no shares of flags: rules, live tests, silence."""
        for name, level in sorted(WatchedStreams(model).levels(connection).items()):
            if level == "critical":
                told = "a rule: its first flag opens an incident"
                yield WatchedStream(kind=FLAGS, name=name, level=level, text=told)
        champion = registry.champion(connection, model)
        tests = _live_tests(connection, model)
        revisions = {name: revision for name, (revision, _) in tests.items()}
        version = None if champion is None else champion.version
        rates = {view.test: view for view in current_rates(connection, model, revisions, version)}
        for name, (_, level) in tests.items():
            yield _live_stream(name, level, rates.get(name))
        yield from _class_streams(connection, model, version, self._rule)
        watch = SilenceWatch(model, self._rule)
        for what in WHAT:
            yield _silence_stream(watch.evidence(connection, what, now_us))


@dataclass(frozen=True, slots=True)
class _Looks:
    """Looks at the streams of a model behind one minute."""

    key: tuple[object, ...]
    looks: Sequence[StreamLook]
    smallest: NDArray[np.float64]


def odds_text(odds: float | None) -> str:
    """Evidence as odds.

    Examples
    --------
    >>> odds_text(None), odds_text(0.04), odds_text(12.4), odds_text(8_000_000.0)
    ('under 1 : 100', '1 : 25', '12 : 1', '10^7 : 1')
    """
    if odds is None:
        return f"under 1 : {1 / LEAST_ODDS:,.0f}"
    if odds < 1.0:
        return f"1 : {1.0 / odds:,.0f}"
    return f"{odds:,.0f} : 1" if odds < 1e6 else f"10^{math.log10(odds):.0f} : 1"


def _flag_streams(found: _Looks) -> Iterator[WatchedStream]:
    for look, smallest in zip(found.looks, found.smallest.tolist(), strict=True):
        is_blind, is_version = math.isnan(smallest), look.slice.startswith(OF_VERSION)
        evidence, needed = _odds(look.evidence), math.exp(look.needed)
        told = f"evidence {odds_text(evidence)} of {odds_text(needed)} needed"
        if not is_blind:
            told += f"; a share of {smallest:.2%} would be found within an hour"
        yield WatchedStream(
            kind=FLAGS,
            name=look.assertion,
            slice=None if look.slice == ALL or is_version else look.slice,
            version=look.slice.removeprefix(OF_VERSION) if is_version else None,
            level="warning",
            status="too_few" if is_blind else "watched",
            before=_share(look.before),
            now=_share(look.now),
            evidence=evidence,
            needed=needed,
            nearness=_nearness(look.evidence, look.needed),
            alpha=look.alpha,
            smallest_share=None if is_blind else smallest,
            text=_too_few(look) if is_blind else told,
        )


def _too_few(look: StreamLook) -> str:
    if not look.now.seen:
        return "too few: no records in the last hour"
    entities = "1 entity" if look.now.seen == 1 else f"{look.now.seen:,} entities"
    return f"too few: {entities} in an hour prove nothing, even if all were flagged"


def _live_stream(name: str, level: str, view: LiveRateView | None) -> WatchedStream:
    if view is None or not view.asked:
        told = "too few: no question was asked yet"
        return WatchedStream(kind=LIVE, name=name, level=level, status="too_few", text=told)
    share: StreamShare = {
        "share": view.rate, "low": view.low, "high": view.high, "flagged": view.failed, "seen": view.asked,
    }  # fmt: skip
    return WatchedStream(
        kind=LIVE,
        name=name,
        level=level,
        now=share,
        nearness=min(1.0, view.low / view.tolerance if view.tolerance else float(view.failed > 0)),
        text=f"fails {view.rate:.2%}, at least {view.low:.2%}; {view.tolerance:.2%} are tolerated",
    )


def _class_streams(
    connection: Connection, model: str, champion: str | None, rule: AlarmRule
) -> Iterator[WatchedStream]:
    """Losses of the rare classes of the judged version; those of all records hardly show them."""
    version = judged_version(connection, model, champion)
    losses = None if version is None else read_losses(connection, model, version)
    if losses is None:
        return
    for part in losses.rare(RARE * rule.loss_points):
        lost, seen = (round(float(side.sum())) for side in losses.of(part).effective)
        most = lost_until_alarm(losses, part, rule)
        told = f"{seen - lost:,} of {seen:,} labels answered right"
        told += f"; {most} more, all wrong, would be an alarm" if most else ": wrong ones prove no loss yet"
        yield WatchedStream(
            kind=PERFORMANCE,
            name=LOSS,
            slice=part,
            level="warning",
            status="watched" if most else "too_few",
            text=told if most else f"too few: {told}",
        )


def _silence_stream(found: SilenceEvidence) -> WatchedStream:
    if found.evidence is None:
        told = f"too few: {'no rhythm is known yet' if found.newest_us else f'no {found.what} yet'}"
        return WatchedStream(kind=SILENT, name=found.what, level="warning", status="too_few", text=told)
    evidence, needed = _odds(found.evidence), math.exp(found.needed)
    last = utc_text(found.newest_us or 0)[:16].replace("T", " ")
    return WatchedStream(
        kind=SILENT,
        name=found.what,
        level="warning",
        evidence=evidence,
        needed=needed,
        nearness=_nearness(found.evidence, found.needed) if found.evidence > 0.0 else 0.0,
        text=f"last {last} UTC; evidence of silence {odds_text(evidence)} of {odds_text(needed)} needed",
    )


def _rested(row: WatchedStream) -> WatchedStream:
    return replace(row, status="suspended", text="suspended: it does not judge")


def _with_incidents(rows: Sequence[WatchedStream], incidents: Sequence[IncidentRow]) -> list[WatchedStream]:
    """Streams with the incident that stands about each, and a row of its own for each other incident."""
    found = {(row.kind, row.name, row.slice, row.version): row for row in rows}
    for incident in sorted(incidents, key=lambda one: one.status not in ALIVE):
        causes = incident.details.get("explained_by") or ()
        about = {
            (cause.get("assertion"), cause.get("slice") or None, cause.get("version") or None)
            for cause in causes
        }
        about |= {(name, None, None) for name, *_ in about}  # a slice speaks for all records too
        about.add((incident.assertion, incident.slice or None, None))
        keys = [(incident.kind, *one) for one in about if (incident.kind, *one) in found]
        if not keys:
            key = incident.kind, incident.assertion, incident.slice or None, None
            found[key] = WatchedStream(kind=key[0], name=key[1], slice=key[2], level=incident.level)
            keys = [key]
        for key in keys:
            if found[key].incident is None:
                found[key] = replace(
                    found[key],
                    status="standing" if incident.status in ALIVE else "muted",
                    incident=incident.id,
                    nearness=1.0,
                    text=incident.sentence,
                )
        _show_share(found, incident)
    return list(found.values())


def _show_share(found: dict[tuple[str, str, str | None, str | None], WatchedStream], of: IncidentRow) -> None:
    """Show the figures of an incident in the row of what it is about."""
    if (share := of.share) is None:
        return
    cause = next(iter(of.details.get("explained_by") or ()), {"assertion": of.assertion, "slice": of.slice})
    key = of.kind, cause["assertion"], cause.get("slice") or None, cause.get("version") or None
    if key not in found or found[key].incident != of.id:
        return
    before = of.details.get("before")
    now: StreamShare = {
        "share": share.share, "low": share.low, "high": share.high,
        "flagged": share.flagged, "seen": share.seen,
    }  # fmt: skip
    found[key] = replace(found[key], before=before or found[key].before, now=now)


def _sentence(streams: Sequence[WatchedStream], standing: int, *, is_judged: bool) -> str:
    """Answer to whether it is quiet because all is well."""
    statuses = Tally(row.status for row in streams)
    able = len(streams) - statuses["too_few"] - statuses["suspended"]
    told = f"{standing} incident{'s' if standing != 1 else ''} open" if standing else "no incident is open"
    if not is_judged:
        return f"{told}; nothing is watched: the model is not in the configuration any more"
    told += f"; {able} of {len(streams)} streams could be judged"
    if statuses["too_few"]:
        told += f", {statuses['too_few']} had too few records"
    near = next((row for row in streams if row.status == "watched" and row.nearness >= NEAR), None)
    if near is not None:
        where = "" if near.slice is None else f" on {near.slice or 'records of no slice'}"
        where += "" if near.version is None else f" of version {near.version}"
        told += f"; nearest to an alarm: {near.name}{where}"
    return told


def _order(row: WatchedStream) -> tuple[bool, float, int, str, str, str, str]:
    rank = STATUSES.index(row.status)
    stands = row.status in ("standing", "muted")
    return (
        not stands,
        rank if stands else -row.nearness,
        rank,
        row.kind,
        row.name,
        row.slice or "",
        row.version or "",
    )


def _share(share: FlaggedShare) -> StreamShare | None:
    if not share.seen:
        return None
    low, high = (float(end) for end in wilson_interval(share.hits, share.seen))
    return {"share": share.share, "low": low, "high": high, "flagged": share.hits, "seen": share.seen}


def _odds(evidence: float) -> float | None:
    """Odds of a logarithm; None for less than is told."""
    return None if evidence < math.log(LEAST_ODDS) else min(_LARGEST, math.exp(min(evidence, 700.0)))


def _nearness(evidence: float, needed: float) -> float:
    least = math.log(LEAST_ODDS)
    return min(1.0, max(0.0, (evidence - least) / (needed - least)))


def _live_tests(connection: Connection, model: str) -> dict[str, tuple[str, str]]:
    """Revision and level of each active live test, by name."""
    own = _ASSERTION.c.model == model, _ASSERTION.c.active, _ASSERTION.c.kind == "live_test"
    query = select(_ASSERTION.c.name, _ASSERTION.c.revision, _ASSERTION.c.level).where(*own)
    return {
        row.name: (row.revision, row.level) for row in connection.execute(query.order_by(_ASSERTION.c.name))
    }
