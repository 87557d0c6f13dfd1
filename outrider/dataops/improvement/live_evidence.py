"""Live evidence for the gate: flags of two versions on common records.

A record counts once, however many assertions fire on it.
"""

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.difference_sequence import mean_bounds
from outrider.dataops.flags.shadow_flags import CommonRecords
from outrider.dataops.ledger.flag_marks import FLAGGED, LEVEL_BITS

from .entity_hours import EntityHours
from .gate import SIGNIFICANCE, LevelFlags, ShadowEvidence

STRETCH_HOURS = 6
"""An entity's fault may last so long, and is one observation of a share."""


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
    more = candidate.astype(np.float64) - champion
    hours = EntityHours.of(common.entity, common.hour, more)
    low, high = hours.bounds(SIGNIFICANCE)
    return ShadowEvidence(
        rows=len(champion),
        champion_flagged=int(champion.sum()),
        candidate_flagged=int(candidate.sum()),
        only_champion=int((champion & ~candidate).sum()),
        only_candidate=int((candidate & ~champion).sum()),
        entities=hours.entities,
        entity_hours=len(hours.value),
        difference=hours.difference,
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
    stretches = EntityHours.of(common.entity, common.hour // STRETCH_HOURS, flagged.astype(np.float64))
    values = stretches.value
    low, high = mean_bounds(2 * values - 1, np.ones(len(values)), 1 - 2 * error)
    return float(values.mean()) if len(values) else 0.0, (low + 1) / 2, (high + 1) / 2, len(values)


def _levels(common: CommonRecords) -> tuple[LevelFlags, ...]:
    found = []
    for level, bit in reversed(LEVEL_BITS.items()):
        champion, candidate = (marks & bit > 0 for marks in (common.champion, common.challenger))
        alone = LevelFlags(level, int((champion & ~candidate).sum()), int((candidate & ~champion).sum()))
        if alone.only_champion or alone.only_candidate:
            found.append(alone)
    return tuple(found)
