"""Evidence that a new champion is worse than the former one on the same records.

Two looks share the allowed error; labels, which are few, have most of it. Each is a betting sequence over
entities' hours, valid however often one looks; nothing is proven by one entity alone.
"""

from dataclasses import dataclass

import numpy as np

from outrider.assertions.statistics.bets import UNIT_BETS
from outrider.dataops.flags.shadow_flags import CommonRecords
from outrider.dataops.ledger.flag_marks import FLAGGED

from .entity_hours import EntityHours
from .paired_labels import LabelledPairs

PART_OF_LABELS = 0.8
"""Part of the allowed error that labels have."""
ERROR_WITHOUT = 0.05
BETS = UNIT_BETS[1:5]
"""The bets that prove differences of two to thirty points soonest."""


@dataclass(frozen=True, slots=True)
class WatchLook:
    """New champion against the former one, by flags or labels; positive where the new one is worse."""

    records: int
    champion: int
    """Records that the new champion is flagged on, or right on."""
    former: int
    only_champion: int
    """Records on which the new champion alone is worse."""
    only_former: int
    entities: int
    entity_hours: int
    difference: float
    low: float
    high: float
    low_without: float
    """Lower bound without the entity that speaks loudest against the new champion."""
    low_across: float
    """Lower bound by the scatter between entities."""

    @property
    def is_proven(self) -> bool:
        """More than one entity proves the new champion worse."""
        return min(self.low, self.low_without, self.low_across) > 0


def look_at_flags(common: CommonRecords, *, error: float) -> WatchLook:
    """Flags of both on common records; ``common.challenger`` is the former champion.

    Examples
    --------
    >>> n = np.arange(1000)
    >>> new, former = np.where(n % 5 == 0, 3, 1).astype(np.uint8), np.ones(1000, dtype=np.uint8)
    >>> found = look_at_flags(CommonRecords(n // 4 + 1, n // 100, new, former), error=0.01)
    >>> found.champion, found.former, round(found.difference, 3), found.is_proven
    (200, 0, 0.2, True)
    """
    champion, former = (marks & FLAGGED > 0 for marks in (common.champion, common.challenger))
    hours = EntityHours.of(common.entity, common.hour, champion.astype(np.float64) - former)
    only = int((champion & ~former).sum()), int((former & ~champion).sum())
    return _look(
        hours, len(champion), (int(champion.sum()), int(former.sum())), only, error * (1 - PART_OF_LABELS)
    )


def look_at_labels(pairs: LabelledPairs, *, error: float) -> WatchLook:
    hours = EntityHours.of(pairs.entity, pairs.hour, pairs.worse)
    only = int((pairs.worse > 0).sum()), int((pairs.worse < 0).sum())
    return _look(
        hours, len(pairs.worse), (pairs.champion_right, pairs.other_right), only, error * PART_OF_LABELS
    )


def _look(
    hours: EntityHours, records: int, both: tuple[int, int], only: tuple[int, int], error: float
) -> WatchLook:
    low, high = hours.bounds(error, BETS)
    rest = hours.without_loudest()
    low_without = low if rest is hours else rest.bounds(max(error, ERROR_WITHOUT), BETS)[0]
    low_across = hours.low_across(error)
    counts = records, *both, *only, hours.entities, len(hours.value)
    return WatchLook(*counts, hours.difference, low, high, low_without, low_across)


def flags_sentence(version: str, former: str, found: WatchLook) -> str:
    """Sentence on flags.

    Examples
    --------
    >>> flags_sentence("2", "1", WatchLook(400, 60, 20, 44, 4, 10, 80, 0.1, 0.05, 0.15, 0.04, 0.03))
    'of 400 records 15.00% are flagged with version 2, 5.00% with version 1 (alone: 44 and 4); over 80 \
hours of 10 entities +10.00%, +5.00% to +15.00%: proven to be more'
    """
    if not found.records:
        return "no record was judged of both yet"
    shares = f"{found.champion / found.records:.2%} are flagged with version {version}"
    shares += f", {found.former / found.records:.2%} with version {former}"
    alone = f"alone: {found.only_champion} and {found.only_former}"
    return f"of {found.records} records {shares} ({alone}); {_bounds(found, 'more')}"


def labels_sentence(version: str, former: str, found: WatchLook, *, is_numeric: bool) -> str:
    """Sentence on labels.

    Examples
    --------
    >>> found = WatchLook(400, 340, 360, 40, 20, 10, 80, 0.05, -0.01, 0.11, -0.02, 0.01)
    >>> labels_sentence("2", "1", found, is_numeric=False)
    'of 400 labelled records version 2 has 85.00% right, version 1 90.00% (alone wrong: 40 and 20); over 80 \
hours of 10 entities +5.00%, -1.00% to +11.00%: not proven to be worse'
    """
    if not found.records:
        return "no labelled record was answered by both yet"
    if is_numeric:
        told = f"version {version} is farther off on {found.only_champion}, "
        told += f"version {former} on {found.only_former}"
        return f"of {found.records} labelled records {told}; {_bounds(found, 'worse')}"
    right = f"version {version} has {found.champion / found.records:.2%} right, version {former} "
    right += (
        f"{found.former / found.records:.2%} (alone wrong: {found.only_champion} and {found.only_former})"
    )
    return f"of {found.records} labelled records {right}; {_bounds(found, 'worse')}"


def _bounds(found: WatchLook, word: str) -> str:
    ends = f"{found.difference:+.2%}, {found.low:+.2%} to {found.high:+.2%}"
    proven = f"proven to be {word}" if found.is_proven else f"not proven to be {word}"
    if found.low > 0 and not found.is_proven:
        where = "without the loudest entity" if found.low_without <= 0 else "across the entities"
        proven = f"not proven to be {word} {where}"
    return f"over {found.entity_hours} hours of {found.entities} entities {ends}: {proven}"
