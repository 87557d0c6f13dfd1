"""Watches over champions of known truth, looked at while labels come.

Labelled records are the records of :mod:`benchmarks.improvement.live_evidence`: what is a fault there is a
wrong answer here. Flags on the records are a history of their own. Both looks count.
"""

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.figure import Figure
from benchmarks.improvement.live_evidence import Traffic, first_records, simulate
from outrider.dataops.flags.shadow_flags import CommonRecords
from outrider.dataops.improvement.paired_labels import LabelledPairs
from outrider.dataops.improvement.watch_evidence import look_at_flags, look_at_labels
from outrider.dataops.ledger.flag_marks import FLAGGED

ERROR = 0.01
HISTORIES = 1000
POWER_HISTORIES = 200
LOOKS = 20
LABELS = 2000
WRONG = 0.10
"""Share of the former champion's answers that are wrong."""
WORSE = 0.05


@dataclass(frozen=True, slots=True)
class Watched:
    """Traffic of a watch: labelled records, and flags where any are looked at."""

    labels: Traffic
    flags: Traffic | None = None


def labelled(common: CommonRecords) -> LabelledPairs:
    """Labelled records on which a mark is a wrong answer; the new champion's are the challenger's there."""
    former, champion = (marks & FLAGGED > 0 for marks in (common.champion, common.challenger))
    worse = champion.astype(np.float64) - former
    return LabelledPairs(common.entity, common.hour, worse, int((~champion).sum()), int((~former).sum()))


def labels_until_proposed(watched: Watched, seed: int, looks: int = LOOKS) -> int | None:
    """Labelled records at the first look that proposes a rollback; None where none does."""
    labels = simulate(watched.labels, seed)
    flags = None if watched.flags is None else simulate(watched.flags, seed + 1_000_000)
    for look in range(1, looks + 1):
        records = len(labels.hour) * look // looks
        found = [look_at_labels(labelled(first_records(labels, records)), error=ERROR)]
        if flags is not None:
            seen = first_records(flags, len(flags.hour) * look // looks)
            found.append(look_at_flags(seen, error=ERROR))
        if any(one.is_proven for one in found):
            return records
    return None


def equal_traffic(seed: int) -> Watched:
    """Equal champions: few or many entities, clusters and storms, by the seed."""
    labels = Traffic(
        entities=(5, 10, 50)[seed % 3],
        hours=(100, 50, 40)[seed % 3],
        per_hour=(4.0, 4.0, 1.0)[seed % 3],
        rate=WRONG,
        correlation=(0.0, 0.2, 0.5)[seed // 3 % 3],
        storms=(0.0, 0.01, 0.05)[seed // 9 % 3],
        fault_records=(1, 3)[seed // 27 % 2],
    )
    return Watched(labels, replace(labels, rate=0.05))


def equal(histories: int = HISTORIES) -> None:
    """Equal champions for which a rollback is proposed."""
    wrong = sum(labels_until_proposed(equal_traffic(seed), seed) is not None for seed in range(histories))
    Figure.of_share(
        "improvement.watch.equal", histories - wrong, histories,
        "watches over an equal champion that propose nothing", base=1 - ERROR, target=1.0,
        data=f"error {ERROR:g}, {LOOKS} looks at flags and at about {LABELS} labels; 5 / 10 / 50 entities "
        "for 100 / 50 / 40 hours with 4 / 4 / 1 labelled records of each an hour, correlation in hours 0 / "
        "0.2 / 0.5, storms of 1-6 hours in 0 / 1 / 5 % of the entity-hours, faults of 1 / 3 records, seed 0",
    ).show()  # fmt: skip


def lasting(histories: int = HISTORIES) -> None:
    """Equal champions where every entity has a lasting preference of its own."""
    for entities in (5, 10, 50):
        labels = Traffic(entities, 2000 // entities, 1.0, WRONG, correlation=0.5, own=1.0, is_lasting=True)
        found = [labels_until_proposed(Watched(labels), seed) for seed in range(histories)]
        Figure.of_share(
            f"improvement.watch.lasting.{entities}_entities",
            sum(one is not None for one in found), histories, "share of watches that propose a rollback",
            data=f"{LOOKS} looks; chances of errors by entity and model, the same in all hours, intra-class "
            "correlation 0.5, from seed 0",
        ).show()  # fmt: skip


WORSE_TRAFFIC = {
    "shared": Traffic(50, 60, 1.0, WRONG / 2, correlation=0.2),
    "independent": Traffic(50, 60, 1.0, WRONG),
    "calm": Traffic(200, 30, 0.5, WRONG, correlation=0.2),
    "usual": Traffic(50, 60, 1.0, WRONG, correlation=0.2),
    "dense": Traffic(10, 75, 4.0, WRONG, correlation=0.2),
}
"""About 3,000 labelled records. Half of the former champion's errors are common where they are ``shared``."""


def shaken(histories: int = POWER_HISTORIES) -> None:
    """Equal champions where one of the two, by lot, fails for all entities at once, for an hour."""
    traffic, found = Traffic(50, 60, 1.0, WRONG, correlation=0.2), 0
    for seed in range(histories):
        rng, history = np.random.default_rng(seed), simulate(traffic, seed)
        is_in, whose = history.hour == rng.integers(traffic.hours), rng.integers(2)
        (history.champion, history.challenger)[whose][is_in] |= FLAGGED
        found += is_proposed(history)
    Figure.of_share(
        "improvement.watch.shaken", found, histories, "share of watches that propose a rollback",
        data=f"{LOOKS} looks at about 3,000 labelled records of 50 entities; in one hour of 60 all answers "
        "of one of the two, by lot, are wrong, from seed 0",
    ).show()  # fmt: skip


def is_proposed(history: CommonRecords) -> bool:
    """True where any look at labels proposes a rollback."""
    seen = (len(history.hour) * look // LOOKS for look in range(1, LOOKS + 1))
    return any(look_at_labels(labelled(first_records(history, n)), error=ERROR).is_proven for n in seen)


def worse(histories: int = POWER_HISTORIES) -> None:
    """Labelled records until a rollback is proposed of a champion 5 points worse, by labels alone."""
    for name, traffic in WORSE_TRAFFIC.items():
        watched = Watched(replace(traffic, ratio=1 + WORSE / traffic.rate))
        found = [labels_until_proposed(watched, seed, 60) for seed in range(histories)]
        needed = np.array([np.inf if until is None else until for until in found])
        common = "half" if traffic.rate < WRONG else "none"
        data = (
            f"right on {1 - WRONG - WORSE:.0%} instead of {1 - WRONG:.0%}; {traffic.entities} entities, "
            f"{traffic.per_hour:g} labelled records of each an hour, {traffic.hours} hours, "
            f"{common} of the former's errors are both's, correlation in hours {traffic.correlation:g}, "
            "60 looks at labels alone, from seed 0"
        )
        Figure(
            f"improvement.watch.labels.{name}", float(np.median(needed)), "labelled records, median",
            f"{LABELS} records", LABELS / float(np.median(needed)), None if name == "dense" else 1.0,
            int(np.isfinite(needed).sum()),
            data=f"n: proposed of {histories} watches; {data}",
        ).show()  # fmt: skip
        Figure.of_share(
            f"improvement.watch.within_{LABELS}.{name}", int((needed <= LABELS).sum()), histories,
            f"watches that propose within {LABELS} labelled records", data=data,
        ).show()  # fmt: skip


if __name__ == "__main__":
    equal()
    lasting()
    shaken()
    worse()
