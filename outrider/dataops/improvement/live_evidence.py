"""Live evidence for the gate: flags of two versions on common records.

A record counts once, however many assertions fire on it. What one entity does within an hour counts as one
observation: the mean over its records of [only the candidate is flagged] - [only the champion is]. The more
an hour of an entity differs, the less is set on its next one: a fault that lasts for hours counts little more
than once. Records without an entity may all be of one source, and are taken as one.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.difference_sequence import mean_bounds
from outrider.dataops.flags.shadow_flags import CommonRecords
from outrider.dataops.ledger.flag_marks import FLAGGED, LEVEL_BITS

from .gate import SIGNIFICANCE, LevelFlags, ShadowEvidence

LEAST_STAKE = 0.1
"""Share of a bet that is set on an hour of an entity whose last hour differed in all records."""
STRETCH_HOURS = 6
"""Of an entity, in which a fault may last and is one observation of a share."""


def live_evidence(common: CommonRecords) -> ShadowEvidence:
    """Counts and the proven difference in flags, from all common records.

    Each bound is one-sided, at ``SIGNIFICANCE``, and holds however often one looks: that of a betting
    sequence over the observations. It speaks of the entities that were seen.

    Examples
    --------
    >>> n = np.arange(1000)
    >>> twice = np.where(n % 10 == 0, 3, 1).astype(np.uint8), np.where(n % 5 == 0, 3, 1).astype(np.uint8)
    >>> found = live_evidence(CommonRecords(n // 4 + 1, n // 100, *twice))
    >>> found.only_champion, found.only_candidate, found.entity_hours, round(found.difference, 3)
    (0, 100, 250, 0.1)
    >>> 0 < found.low < found.difference < found.high
    True
    """
    champion, candidate = (marks & FLAGGED > 0 for marks in (common.champion, common.challenger))
    values, first = _by_entity_hour(common, candidate.astype(np.float64) - champion)
    stake = _stakes(values, common.entity[first])
    low, high = mean_bounds(values, stake, 1 - 2 * SIGNIFICANCE)
    return ShadowEvidence(
        rows=len(champion),
        champion_flagged=int(champion.sum()),
        candidate_flagged=int(candidate.sum()),
        only_champion=int((champion & ~candidate).sum()),
        only_candidate=int((candidate & ~champion).sum()),
        entities=len(set(common.entity[first].tolist()) - {0}),
        entity_hours=len(first),
        difference=float(np.average(values, weights=stake)) if len(values) else 0.0,
        low=low,
        high=high,
        levels=_levels(common),
        others=common.others,
    )


def share_flagged(
    common: CommonRecords, flagged: NDArray[np.bool_], *, error: float
) -> tuple[float, float, float, int]:
    """Share of flagged records, its one-sided bounds, and the stretches.

    What one entity does within ``STRETCH_HOURS`` counts as one observation. Bounds hold however often one
    looks, as long as these err apart. (0.0, 0.0, 1.0, 0) without records. None counts for less than another,
    whatever came before it: less of what lasts would be a smaller share.

    Examples
    --------
    >>> n, none = np.arange(1000), np.zeros(1000, dtype=np.uint8)
    >>> found = share_flagged(CommonRecords(n // 2 + 1, n // 100, none, none), n % 50 == 0, error=0.05)
    >>> [round(one, 3) for one in found]
    [0.02, 0.009, 0.037, 500]
    """
    common = replace(common, hour=common.hour // STRETCH_HOURS)
    values, first = _by_entity_hour(common, flagged.astype(np.float64))
    low, high = mean_bounds(2 * values - 1, np.ones(len(values)), 1 - 2 * error)
    return float(values.mean()) if len(values) else 0.0, (low + 1) / 2, (high + 1) / 2, len(first)


def _by_entity_hour(
    common: CommonRecords, of_records: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Mean of records by hour of an entity, in the order of both, and a record of each."""
    hour = common.hour - common.hour.min(initial=0)
    unit = common.entity * (hour.max(initial=0) + 1) + hour
    _, first, at = np.unique(unit, return_index=True, return_inverse=True)
    return np.bincount(at, of_records) / np.bincount(at), first


def _stakes(values: NDArray[np.float64], entity: NDArray[np.int64]) -> NDArray[np.float64]:
    """Stake on each observation by the one before it of the same entity. In the order of both."""
    stake = np.ones(len(values))
    is_next = entity[1:] == entity[:-1]
    stake[1:][is_next] = np.maximum(1 - np.abs(values[:-1][is_next]), LEAST_STAKE)
    return stake


def _levels(common: CommonRecords) -> tuple[LevelFlags, ...]:
    """Records that one of the two alone flags at a level, the gravest first."""
    found = []
    for level, bit in reversed(LEVEL_BITS.items()):
        champion, candidate = (marks & bit > 0 for marks in (common.champion, common.challenger))
        alone = LevelFlags(level, int((champion & ~candidate).sum()), int((candidate & ~champion).sum()))
        if alone.only_champion or alone.only_candidate:
            found.append(alone)
    return tuple(found)
