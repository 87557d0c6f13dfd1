"""Versions that explain an alarm, ranked beside slices."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.assertions.detection.rises import largest_ratio
from outrider.dataops.ledger.cube import FLAGS, RECORDS, flags_of

from .minute_counts import ALL, OF_VERSION, MinuteCounts
from .rate_alarms import OWN_ENOUGH, AlarmRule, Cause, FlaggedShare, RateAlarm, Usual

_BESIDE = math.log(20.0)
"""Likelihood ratio from which a version is worse than those that answer beside it."""
_AS_MUCH = 0.99
Sides = NDArray[np.float64]


def with_versions(
    connection: Connection,
    counts: MinuteCounts,
    alarm: RateAlarm,
    told: Sequence[Cause],
    rule: AlarmRule,
    *,
    usual: Usual,
) -> list[Cause]:
    """Causes with the versions that explain the first one, ranked.

    A version explains it where it is worse than those beside it, or alone answers since the onset and is
    new; its share before is its own, or that of all others where it has few entities.
    """
    first = told[0]
    key = first.assertion, first.slice
    since_us = max(counts.start_us, usual.begun.get(first.assertion, 0), usual.since.get(key, 0))
    versions = _sides(connection, counts, first, since_us=since_us, onset_us=alarm.onset_us)
    least = -math.log(rule.alpha) + math.log(max(1, len(versions)))
    found = [_cause(first, version, own, versions) for version, own in versions.items() if version]
    found = sorted((one for one in found if one.weight >= least), key=lambda one: -one.weight)
    whole = _ratio(first.before, first.now)
    ahead = [one for one in found if one.weight >= _AS_MUCH * whole]
    return [*ahead, *told, *(one for one in found if one not in ahead)]


def _sides(
    connection: Connection, counts: MinuteCounts, first: Cause, *, since_us: int, onset_us: int
) -> dict[str, Sides]:
    found: dict[str, Sides] = {}
    part = None if first.slice == ALL else first.slice
    for at, cube, of in ((0, FLAGS, flags_of(first.assertion, slice=part)), (1, RECORDS, {"slice": part})):
        is_since = cube.table.c.minute_us >= onset_us
        query = cube.query(
            counts.model, "version", is_since,
            sums=("entities",), since_us=since_us, until_us=counts.stop_us, of=of,
        )  # fmt: skip
        for version, since, entities in connection.execute(query):
            found.setdefault(version, np.zeros((2, 2)))[int(since), at] += entities
    for sides in found.values():
        sides[:, 0] = np.minimum(sides[:, 0], sides[:, 1])
    return found


def _cause(first: Cause, version: str, own: Sides, versions: Mapping[str, Sides]) -> Cause:
    """Version as a cause; of weight 0.0 where it does not explain the rise."""
    total = np.sum(list(versions.values()), axis=0)
    others, (before, now) = total - own, own
    is_new = before[1] < OWN_ENOUGH
    if others[1, 1]:
        explains = float(largest_ratio(*others[1], *now)) >= _BESIDE
    else:
        explains = is_new and len(versions) > 1
    if is_new:
        before = total.sum(axis=0) - now
    weight = float(largest_ratio(*before, *now)) if explains and now[1] else 0.0
    return Cause(first.assertion, first.slice, _share(before), _share(now), weight, version)


def _ratio(before: FlaggedShare, now: FlaggedShare) -> float:
    sides = (before.hits, before.seen, now.hits, now.seen)
    return float(largest_ratio(*(np.array(float(one)) for one in sides)))


def _share(side: Sides) -> FlaggedShare:
    return FlaggedShare(int(side[0]), int(side[1]))


def worse_beside(
    connection: Connection, counts: MinuteCounts, alarm: RateAlarm, rule: AlarmRule, *, streams: int
) -> Cause | None:
    """Version of an alarm as a cause, where worse than others.

    Others are held against it with its own mix of slices: a version that answers a harder mix is no worse.
    None where no other answers: then all records are the cause.

    Parameters
    ----------
    streams
        Versions and assertions that are looked at together.

    References
    ----------
    Direct standardization: Rothman, Greenland and Lash, "Modern Epidemiology", 2008, chapter 15.
    """
    version = alarm.slice.removeprefix(OF_VERSION)
    own, others = _by_slice(connection, counts, alarm, version)
    if not own[:, 1].sum() or not others[:, 1].sum():
        return None
    mean, entities = _standardized(own, others)
    now = own.sum(axis=0)
    weight = float(largest_ratio(np.array(mean * entities), np.array(entities), now[0], now[1]))
    if weight < -math.log(rule.alpha) + math.log(streams):
        return None
    return Cause(alarm.assertion, ALL, _share(others.sum(axis=0)), _share(now), weight, version)


def _by_slice(
    connection: Connection, counts: MinuteCounts, alarm: RateAlarm, version: str
) -> tuple[Sides, Sides]:
    found: dict[str, Sides] = {}
    for at, cube, of in ((0, FLAGS, flags_of(alarm.assertion)), (1, RECORDS, {})):
        query = cube.query(
            counts.model, "slice", "version",
            sums=("entities",), since_us=alarm.first_us, until_us=counts.stop_us, of=of,
        )  # fmt: skip
        for part, stated, entities in connection.execute(query):
            found.setdefault(part, np.zeros((2, 2)))[int(stated != version), at] += entities
    sides = np.array(list(found.values())).reshape(-1, 2, 2)
    sides[:, :, 0] = np.minimum(sides[:, :, 0], sides[:, :, 1])
    return sides[:, 0], sides[:, 1]


def _standardized(own: Sides, others: Sides) -> tuple[float, float]:
    weight = own[:, 1] / own[:, 1].sum()
    share = others[:, 0].sum() / others[:, 1].sum()
    total = others[:, 1]
    each = (others[:, 0] + OWN_ENOUGH * share) / (total + OWN_ENOUGH)
    mean = float((weight * each).sum())
    variance = float((weight**2 * each * (1.0 - each) / (total + OWN_ENOUGH)).sum())
    return mean, min(float(total.sum()), mean * (1.0 - mean) / max(variance, 1e-12))
