"""Alarms about shares of flags: the decision behind incident, webhook and metric.

A stream is an assertion on all records or on one slice. Its observations are entities, each once a minute.
All streams of a model are looked at after every complete minute, with one alpha over all of them: see
:func:`outrider.assertions.detection.rising` and :func:`~outrider.assertions.detection.select_alarms`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.detection import (
    Hours,
    Spread,
    onset_interval,
    rising,
    select_alarms,
    smallest_rise,
    weekly_odds,
    weekly_rates,
)
from outrider.assertions.detection.rises import floor_of, largest_ratio, might_rise
from outrider.assertions.statistics.wilson import wilson_interval
from outrider.dataops.ledger.minutes import MINUTE_US

from .minute_counts import ALL, OF_VERSION, MinuteCounts

Floats = NDArray[np.float64]
Stream = tuple[str, str]
OWN_ENOUGH = 50
"""Entities before the onset from which a slice is compared with its own share."""
MOST_CAUSES = 6
"""Most slices with incidents of their own; beyond, all records are the cause."""


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """Guarantee of alarms; see ``[flags]`` in the configuration.

    While nothing changes, a model opens any incident of a ``warning`` within ``horizon_s`` with a chance
    of at most ``alpha``.
    """

    alpha: float = 0.01
    horizon_s: float = 604_800.0
    baseline_s: float = 86_400.0
    odds: float = 1.5
    """Odds of a flag, times the usual ones, that are no news."""
    quiet_s: float = 900.0
    loss_points: float = 0.01
    """Rise of the loss, as a share of labelled observations, that is no news."""
    drift_window_s: float = 3600.0
    """Window of stored profiles that is decided about: an hour, or a minute."""
    drift_reference: Literal["traffic", "dataset"] = "traffic"
    """Of inputs: earlier traffic, or the dataset version that the champion learned from."""

    @property
    def horizon(self) -> int:
        return max(1, round(self.horizon_s * 1e6 / MINUTE_US))

    @property
    def step(self) -> int:
        """Minutes after which another reference begins: a quarter of the baseline."""
        return max(1, round(self.baseline_s * 1e6 / MINUTE_US / 4))

    @property
    def minutes(self) -> int:
        return 10 * self.step

    @property
    def widths(self) -> list[int]:
        return [max(1, self.step // 24), max(1, self.step // 6), max(1, self.step * 2 // 3)]


@dataclass(frozen=True, slots=True)
class FlaggedShare:
    hits: int
    seen: int

    @property
    def share(self) -> float:
        return self.hits / self.seen if self.seen else 0.0


@dataclass(frozen=True, slots=True)
class StreamLook:
    """Evidence that a stream's share has risen after a complete minute.

    ``alpha`` is the stream's part; ``evidence`` is a logarithm, -inf below what was asked for or after an
    hour without flags; ``before`` and ``now`` are entities of the reference and of the last hour.
    """

    assertion: str
    slice: str
    alpha: float
    evidence: float
    before: FlaggedShare
    now: FlaggedShare

    @property
    def stream(self) -> Stream:
        return self.assertion, self.slice

    @property
    def needed(self) -> float:
        return -math.log(self.alpha)


@dataclass(frozen=True, slots=True)
class RateAlarm:
    """Proof that a stream's share has risen, with the onset in microseconds."""

    assertion: str
    slice: str
    evidence: float
    onset_us: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Cause:
    assertion: str
    slice: str
    before: FlaggedShare
    now: FlaggedShare
    weight: float
    """Log likelihood ratio, >= 0."""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Usual:
    begun: Mapping[str, int] = field(default_factory=dict)
    """Start of each assertion's judging: minutes before say nothing."""
    since: Mapping[Stream, int] = field(default_factory=dict)
    """Minute from which a stream counts."""
    left_out: Mapping[Stream, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Excluded minutes of earlier incidents."""

    def of(self, counts: MinuteCounts, key: Stream) -> tuple[Floats, Floats]:
        """Hits and entities seen, 0.0 in excluded minutes, shape (minutes,) each; what is excluded
        for all records is for their versions."""
        hits, seen = (side.copy() for side in counts.of(*key))
        told = [key, (key[0], ALL)] if key[1].startswith(OF_VERSION) else [key]
        since_us = max(self.begun.get(key[0], 0), *(self.since.get(one, 0) for one in told))
        left_out = [minutes for one in told for minutes in self.left_out.get(one, ())]
        for first, last in ((0, since_us), *left_out):
            gone = slice(counts.index(first), counts.index(last))
            hits[gone] = seen[gone] = 0.0
        return hits, seen

    def since_it_came(self, counts: MinuteCounts, key: Stream) -> tuple[Floats, Floats]:
        """Minutes of a stream, of all records before its version came.

        So a version that is worse from its first record is compared with the others, unless a person
        accepted its share.
        """
        hits, seen = self.of(counts, key)
        is_own = key[1].startswith(OF_VERSION)
        first = int(np.argmax(counts.of("", key[1])[1] > 0)) if is_own else 0
        if not first or self.since.get(key, 0) > counts.start_us + first * MINUTE_US:
            return hits, seen
        before = self.of(counts, (key[0], ALL))
        return (
            np.concatenate([before[0][:first], hits[first:]]),
            np.concatenate([before[1][:first], seen[first:]]),
        )


EVERYTHING = Usual()


PastHours: TypeAlias = Callable[[Stream, int], Hours]


def rate_alarms(
    counts: MinuteCounts,
    assertions: Sequence[str],
    rule: AlarmRule,
    *,
    usual: Usual = EVERYTHING,
    past: PastHours | None = None,
    standing: Set[Stream],
) -> list[RateAlarm]:
    """Streams that alarm after the newest complete minute; those in ``standing`` have an open incident."""
    looks = stream_looks(
        counts, assertions, rule, usual=usual, past=past, left_out=standing, least=-math.log(rule.alpha)
    )
    if not looks:
        return []
    evidence = np.array([look.evidence for look in looks])
    share = np.array([look.alpha for look in looks]) / rule.alpha
    alarms = select_alarms(evidence, alpha=rule.alpha, share=share)
    found = [looks[at] for at in np.flatnonzero(alarms).tolist()]
    return [_alarm(counts, look, usual, past) for look in found]


def stream_looks(
    counts: MinuteCounts,
    assertions: Sequence[str],
    rule: AlarmRule,
    *,
    usual: Usual = EVERYTHING,
    past: PastHours | None = None,
    left_out: Set[Stream] = frozenset(),
    least: float = 0.0,
) -> list[StreamLook]:
    """Evidence of every stream after the newest complete minute; -inf where a cheap bound is below
    ``least``."""
    parts, versions = counts.slices(), counts.versions()
    begin, _ = _window(counts, rule)
    streams = [(name, part) for name in assertions for part in (ALL, *parts, *versions)]
    evidence = np.full(len(streams), -np.inf)
    sides: list[tuple[FlaggedShare, FlaggedShare]] = []
    recent: dict[int, tuple[Floats, Floats]] = {}
    """Rows of streams to examine, by position."""
    for at, key in enumerate(streams):
        rows = usual.since_it_came(counts, key)
        own = usual.of(counts, key) if key[1].startswith(OF_VERSION) else rows
        now = _sums(own, slice(-_LATEST, None))
        whole = _sums(rows, slice(begin, None))
        sides.append((_share((whole[0] - now[0], whole[1] - now[1])), _share(now)))
        if key not in left_out and rows[0][-_LATEST:].any():
            recent[at] = rows
        if len(recent) == _AT_ONCE or (recent and at == len(streams) - 1):
            for place, found in _evidence(counts, streams, recent, parts, rule, past, usual, least=least):
                evidence[place] = found
            recent = {}
    return [
        StreamLook(
            *key, rule.alpha * _alpha_share(key[1], parts, versions) / len(assertions), float(one), *shares
        )
        for key, one, shares in zip(streams, evidence, sides, strict=True)
    ]


def _evidence(
    counts: MinuteCounts,
    streams: Sequence[Stream],
    recent: Mapping[int, tuple[Floats, Floats]],
    parts: Sequence[str],
    rule: AlarmRule,
    past: PastHours | None,
    usual: Usual,
    *,
    least: float,
) -> Iterator[tuple[int, float]]:
    """Evidence of the streams at some positions, as far as it may reach ``least``."""
    begin, earliest = _window(counts, rule)
    horizon = _WINDOWS * rule.horizon
    whole = [np.stack([rows[side] for rows in recent.values()]) for side in (0, 1)]
    may = might_rise(
        whole[0][:, begin:], whole[1][:, begin:], horizon=horizon, needed=least, earliest=earliest
    )
    looked = [at for at, one in zip(recent, may.tolist(), strict=True) if one]
    if not looked:
        return
    whole = [side[may] for side in whole]
    spread = Spread.of(whole[0], whole[1], rule.widths, peak=rule.widths[-2]).since(begin)
    hits, seen = (side[:, begin:] for side in whole)
    evidence = rising(
        hits, seen, horizon=horizon, needed=least, odds=rule.odds, earliest=earliest, spread=spread
    )
    for row, at in enumerate(looked):
        found, own = float(evidence[row]), spread.row(row)
        known, expected = None, None
        if found > 0.0 and parts and streams[at][1] == ALL:
            known = _known_mix(counts, streams[at][0], parts, hits[row], seen[row], begin)
        if found > 0.0 and past is not None:
            hours = past(streams[at], usual.begun.get(streams[at][0], 0))
            rates = weekly_rates(whole[1][row], counts.hours, hours)
            if (rates != 1.0).any():
                sides = whole[0][row : row + 1], whole[1][row : row + 1]
                own = Spread.of(*sides, rule.widths, peak=rule.widths[-2], expected=rates).since(begin)
            expected = weekly_odds(seen[row], counts.hours[begin:], hours, spread=own.overall[0])
        if known is not None or (expected is not None and (expected > 1.0).any()):
            held = rising(
                hits[row : row + 1], seen[row : row + 1], known=known, horizon=horizon, needed=least,
                odds=rule.odds, earliest=earliest, spread=own, expected=expected,
            )  # fmt: skip
            found = min(found, float(held[0]))
        yield at, found


def smallest_shares(looks: Sequence[StreamLook], rule: AlarmRule) -> Floats:
    """Smallest share of each stream that one more hour would prove with a chance of 90 %.

    At the last hour's volume and as evidence of that one onset; nan where even 1 is not proven, shape
    (streams,).
    """
    sides = [
        (look.before.hits + look.now.hits, look.before.seen + look.now.seen, look.now.seen) for look in looks
    ]
    hits, seen, now = np.array(sides, dtype=np.float64).reshape(-1, 3).T
    return likely_shares(hits, seen, now, np.array([look.alpha for look in looks]), rule)


def likely_shares(hits: Floats, seen: Floats, now: Floats, alpha: Floats, rule: AlarmRule) -> Floats:
    """Smallest shares proven with a chance of 90 %, shape (streams,); nan for none."""
    needed = -np.log(alpha) + math.log(_WINDOWS * rule.horizon)
    proven = smallest_rise(hits, seen, now, needed=needed, odds=rule.odds)
    # As many hits come with that chance where the share is their one-sided upper limit.
    likely = wilson_interval(np.nan_to_num(proven) * now, np.maximum(now, 1.0), confidence=_LIKELY)[1]
    return np.where(np.isnan(proven), np.nan, likely)


_LIKELY = 0.8
_ENOUGH = 10
_AT_ONCE = 64
_LATEST = 60
"""A stream without a flag in as many minutes is not rising."""
_WINDOWS = 4
"""Most references of an onset: the first of a model, and three rolling ones."""


def _window(counts: MinuteCounts, rule: AlarmRule) -> tuple[int, int]:
    """First minute of the reference, and the first that may be an onset.

    A reference stays for a quarter of the baseline, so that the evidence of an onset is a martingale
    meanwhile; then only onsets of its second half count.
    """
    newest = counts.stop_us // MINUTE_US
    begin = (newest // rule.step - 4) * rule.step - counts.start_us // MINUTE_US
    begin = max(0, begin)
    has_earlier = counts.of("", ALL)[1][:begin].any()
    return begin, 2 * rule.step if has_earlier else 1


def causes(
    counts: MinuteCounts,
    assertions: Iterable[str],
    alarm: RateAlarm,
    rule: AlarmRule,
    *,
    usual: Usual = EVERYTHING,
) -> list[Cause]:
    """Assertions and slices whose share rose at an onset, ranked; without those that noise explains."""
    at = counts.index(alarm.onset_us)
    parts = counts.slices() or [ALL]
    names = sorted(assertions)
    least = -math.log(rule.alpha) + math.log(max(1, len(parts) * len(names)))
    found = [_cause(counts, name, part, at, usual) for name in names for part in parts]
    return sorted((one for one in found if one.weight >= least), key=lambda one: -one.weight)


def why_over(
    counts: MinuteCounts,
    cause: Stream,
    before: float,
    now: float,
    rule: AlarmRule,
    *,
    most: float,
    since_us: int,
) -> str:
    """Reason that a cause has ended, or empty.

    The share of the last ``quiet_s`` (or of ten entities)
    is nearer to the one before than to the alarm's and may be the one before (``most`` at most), or
    nothing came for ``baseline_s``."""
    hits, seen = counts.of(*cause)
    day = max(1, round(rule.baseline_s * 1e6 / MINUTE_US))
    open_for = counts.minutes - counts.index(since_us)
    if open_for >= day and not seen[-day:].any():
        return f"nothing came for {rule.baseline_s:g} s"
    quiet = max(1, round(rule.quiet_s * 1e6 / MINUTE_US))
    held = np.cumsum(seen[::-1])
    minutes = max(quiet, int(np.searchsorted(held, _ENOUGH)) + 1)
    if minutes > max(quiet, open_for) or held[quiet - 1] == 0.0:
        return ""
    share = float(hits[-minutes:].sum() / held[minutes - 1])
    angles = [math.asin(math.sqrt(min(1.0, each))) for each in (before, share, now)]
    low = float(wilson_interval(float(hits[-minutes:].sum()), float(held[minutes - 1]))[0])
    if angles[1] > (angles[0] + angles[2]) / 2.0 or low > float(floor_of(np.array(most), rule.odds)):
        return ""
    return f"the share is what it was before, for {minutes * MINUTE_US / 1e6:g} s"


def _cause(counts: MinuteCounts, assertion: str, part: str, at: int, usual: Usual) -> Cause:
    hits, seen = usual.of(counts, (assertion, part))
    now = hits[at:].sum(), seen[at:].sum()
    before = hits[:at].sum(), seen[:at].sum()
    if before[1] < OWN_ENOUGH and part != ALL:  # beside what the others show
        all_hits, all_seen = usual.of(counts, (assertion, ALL))
        before = max(0.0, all_hits.sum() - now[0]), max(0.0, all_seen.sum() - now[1])
    weight = largest_ratio(*(np.array(float(side)) for side in (*before, *now)))
    return Cause(assertion, part, _share(before), _share(now), float(weight))


def _known_mix(
    counts: MinuteCounts, assertion: str, parts: Sequence[str], hits: Floats, seen: Floats, begin: int
) -> tuple[Floats, Floats]:
    """Hits and entities before each minute, as if slices had had the volumes that they have from it on.

    Volumes by slice that come and go move the share of all records though none of a slice has changed. Each
    slice's share before is drawn to that of all by ``OWN_ENOUGH`` entities; entities are as many as leave the
    mean its variance. Shape (minutes - 1,) each, between minutes.

    References
    ----------
    Direct standardization: Rothman, Greenland and Lash, "Modern Epidemiology", 2008, chapter 15.
    """
    is_kept = seen > 0

    def own() -> Iterator[tuple[Floats, Floats]]:
        for part in parts:
            hits_of, seen_of = counts.of(assertion, part)
            yield hits_of[begin:] * is_kept, seen_of[begin:] * is_kept

    rest = [hits.copy(), seen.copy()]
    for sides in own():
        rest = [whole - side for whole, side in zip(rest, sides, strict=True)]
    rest = [np.maximum(0.0, side) for side in rest]
    whole = [side.copy() for side in rest]
    for sides in own():
        whole = [both + side for both, side in zip(whole, sides, strict=True)]
    all_before, all_total = (np.cumsum(side)[:-1] for side in whole)
    all_after = np.maximum(whole[1].sum() - all_total, 1.0)
    share = all_before / np.maximum(all_total, 1.0)
    mean, variance = np.zeros_like(share), np.zeros_like(share)
    for sides in chain(own(), [(rest[0], rest[1])]):
        before, total = (np.cumsum(side)[:-1] for side in sides)
        weight = (sides[1].sum() - total) / all_after
        each = (before + OWN_ENOUGH * share) / (total + OWN_ENOUGH)
        own_weight = total / (total + OWN_ENOUGH)
        noise = own_weight**2 * each * (1.0 - each) / np.maximum(total, 1.0)
        noise += (1.0 - own_weight) ** 2 * share * (1.0 - share) / np.maximum(all_total, 1.0)
        mean += weight * each
        variance += weight**2 * noise
    entities = np.minimum(all_total, mean * (1.0 - mean) / np.maximum(variance, 1e-12))
    return mean * entities, entities


def _sums(rows: tuple[Floats, Floats], minutes: slice) -> tuple[float, float]:
    return float(rows[0][minutes].sum()), float(rows[1][minutes].sum())


def _share(sums: tuple[float, float]) -> FlaggedShare:
    return FlaggedShare(int(sums[0]), int(sums[1]))


def _alpha_share(part: str, slices: Sequence[str], versions: Sequence[str]) -> float:
    """Half of alpha is for all records, the other half for slices and versions."""
    others = [kind for kind in (slices, versions) if kind]
    if part == ALL:
        return 0.5 if others else 1.0
    own = versions if part.startswith(OF_VERSION) else slices
    return 0.5 / (len(others) * len(own))


def _alarm(counts: MinuteCounts, look: StreamLook, usual: Usual, past: PastHours | None) -> RateAlarm:
    key = look.stream
    hits, seen = usual.since_it_came(counts, key)
    begun = int(np.flatnonzero(seen)[0])  # minutes before the first record say nothing
    if past is not None:
        rates = weekly_rates(seen, counts.hours, past(key, usual.begun.get(key[0], 0)))
        seen = seen * rates / rates.min()  # where more is usual, as many hits are of more entities
    found = onset_interval(hits[begun:], seen[begun:])
    onset, first, last = (
        counts.start_us + (begun + block) * MINUTE_US for block in (found.block, found.first, found.last)
    )
    return RateAlarm(*key, look.evidence, onset, first, last + MINUTE_US)
