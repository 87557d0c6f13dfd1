"""Alarms about shares of flags: the decision behind incident, webhook and metric.

A stream is an assertion on all records or on one slice. Its observations are entities, each once a minute.
All streams of a model are looked at after every complete minute, with one alpha over all of them: see
:func:`outrider.assertions.detection.rising` and :func:`~outrider.assertions.detection.select_alarms`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.detection import onset_interval, rising, select_alarms
from outrider.assertions.detection.rises import largest_ratio
from outrider.dataops.ledger.minutes import MINUTE_US

from .minute_counts import ALL, MinuteCounts

Floats = NDArray[np.float64]
Stream = tuple[str, str]
"""Assertion and slice."""
OWN_ENOUGH = 50
"""Entities before the onset from which a slice is held against its own share, not against that of all."""
MOST_CAUSES = 6
"""Slices with an incident of their own at once: of more, all records are the cause."""


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """Guarantee of alarms; see ``[flags]`` in the configuration.

    While nothing changes, a model opens any incident of a ``warning`` within ``horizon_s`` with a chance of
    at most ``alpha``.
    """

    alpha: float = 0.01
    horizon_s: float = 604_800.0
    baseline_s: float = 86_400.0
    odds: float = 1.5
    """Odds of a flag, times the usual ones, that are no news."""
    quiet_s: float = 900.0

    @property
    def horizon(self) -> int:
        """Minutes."""
        return max(1, round(self.horizon_s * 1e6 / MINUTE_US))

    @property
    def step(self) -> int:
        """Minutes after which another reference begins: a quarter of the baseline."""
        return max(1, round(self.baseline_s * 1e6 / MINUTE_US / 4))


@dataclass(frozen=True, slots=True)
class FlaggedShare:
    """Entities with flags among all entities seen."""

    hits: int
    seen: int

    @property
    def share(self) -> float:
        """0.0 where none was seen."""
        return self.hits / self.seen if self.seen else 0.0


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
    """Assertion and slice that explain an alarm: its share before and now."""

    assertion: str
    slice: str
    before: FlaggedShare
    now: FlaggedShare
    weight: float
    """Logarithm of the likelihood ratio, >= 0: the larger, the more it explains."""


def rate_alarms(
    counts: MinuteCounts,
    assertions: Sequence[str],
    rule: AlarmRule,
    *,
    since: Mapping[Stream, int],
    left_out: Mapping[Stream, Sequence[tuple[int, int]]],
    standing: Set[Stream],
) -> list[RateAlarm]:
    """Find the streams that alarm behind the newest complete minute.

    Parameters
    ----------
    assertions
        Those of level ``warning``.
    since
        Minute from which a stream counts: what was before is another normal.
    left_out
        Minutes of earlier incidents, which are no usual ones.
    standing
        Streams with an open incident, which need no other.
    """
    parts = counts.slices()
    begin, earliest = _window(counts, rule)
    streams = [(name, part) for name in assertions for part in (ALL, *parts)]
    if not streams:
        return []
    share = np.array([_alpha_share(part, len(assertions), len(parts)) for _, part in streams])
    rows = {key: _kept(counts, key, since.get(key, 0), left_out.get(key, ())) for key in streams}
    evidence = np.full(len(streams), -np.inf)
    looked = [at for at, key in enumerate(streams) if key not in standing and rows[key][0][-_LATEST:].any()]
    if looked:
        hits, seen = (np.stack([rows[streams[at]][side][begin:] for at in looked]) for side in (0, 1))
        needed = -math.log(rule.alpha)
        evidence[looked] = rising(
            hits, seen, horizon=_WINDOWS * rule.horizon, needed=needed, odds=rule.odds, earliest=earliest
        )
    alarms = select_alarms(evidence, alpha=rule.alpha, share=share)
    return [
        _alarm(counts, streams[at], rows[streams[at]], float(evidence[at]))
        for at in np.flatnonzero(alarms).tolist()
    ]


_LATEST = 60
"""A stream without a flag in as many minutes is not rising."""
_WINDOWS = 4
"""References, at most, that an onset is held against: the first of a model, and three of the rolling ones."""


def _window(counts: MinuteCounts, rule: AlarmRule) -> tuple[int, int]:
    """First minute of the reference, and the first one behind it that may be an onset.

    A reference stays for a quarter of the baseline, so that the evidence of an onset is a martingale while it
    does. What came before it is forgotten; then only onsets of its second half count.
    """
    newest = counts.stop_us // MINUTE_US
    begin = (newest // rule.step - 4) * rule.step - counts.start_us // MINUTE_US
    begin = max(0, begin)
    has_earlier = counts.of("", ALL)[1][:begin].any()
    return begin, 2 * rule.step if has_earlier else 1


def causes(counts: MinuteCounts, assertions: Iterable[str], alarm: RateAlarm, rule: AlarmRule) -> list[Cause]:
    """Assertions and slices whose share rose at an onset, ranked.

    Those that noise explains as well are left out.
    """
    at = counts.index(alarm.onset_us)
    parts = counts.slices() or [ALL]
    names = sorted(assertions)
    least = -math.log(rule.alpha) + math.log(max(1, len(parts) * len(names)))
    found = [_cause(counts, name, part, at) for name in names for part in parts]
    return sorted((one for one in found if one.weight >= least), key=lambda one: -one.weight)


def is_over(counts: MinuteCounts, cause: Stream, before: float, now: float, rule: AlarmRule) -> bool:
    """True where the share is the usual one again.

    That of the last ``quiet_s`` lies nearer to the one before than to the alarm's.
    """
    minutes = max(1, round(rule.quiet_s * 1e6 / MINUTE_US))
    hits, seen = (float(side[-minutes:].sum()) for side in counts.of(*cause))
    if seen < 10:
        return False
    angles = [math.asin(math.sqrt(min(1.0, share))) for share in (before, hits / seen, now)]
    return angles[1] <= (angles[0] + angles[2]) / 2.0


def _cause(counts: MinuteCounts, assertion: str, part: str, at: int) -> Cause:
    hits, seen = counts.of(assertion, part)
    now = hits[at:].sum(), seen[at:].sum()
    own = hits[:at].sum(), seen[:at].sum()
    usual = own
    if own[1] < OWN_ENOUGH and part != ALL:  # beside what the others show
        all_hits, all_seen = counts.of(assertion, ALL)
        usual = all_hits.sum() - now[0], all_seen.sum() - now[1]
    weight = largest_ratio(*(np.array(float(side)) for side in (*usual, *now)))
    return Cause(assertion, part, _share(own), _share(now), float(weight))


def _share(sums: tuple[float, float]) -> FlaggedShare:
    return FlaggedShare(int(sums[0]), int(sums[1]))


def _alpha_share(part: str, assertions: int, slices: int) -> float:
    """Half of alpha is for all records, the other half for slices."""
    if not slices:
        return 1.0 / assertions
    return 0.5 / assertions if part == ALL else 0.5 / (assertions * slices)


def _kept(
    counts: MinuteCounts, key: Stream, since_us: int, left_out: Iterable[tuple[int, int]]
) -> tuple[Floats, Floats]:
    hits, seen = (side.copy() for side in counts.of(*key))
    for first, last in ((0, since_us), *left_out):
        gone = slice(counts.index(first), counts.index(last))
        hits[gone] = seen[gone] = 0.0
    return hits, seen


def _alarm(counts: MinuteCounts, key: Stream, rows: tuple[Floats, Floats], evidence: float) -> RateAlarm:
    begun = int(np.flatnonzero(rows[1])[0])  # minutes before the first record say nothing
    found = onset_interval(rows[0][begun:], rows[1][begun:])
    onset, first, last = (
        counts.start_us + (begun + block) * MINUTE_US for block in (found.block, found.first, found.last)
    )
    return RateAlarm(*key, evidence, onset, first, last + MINUTE_US)
