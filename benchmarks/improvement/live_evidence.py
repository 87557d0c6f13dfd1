"""Live evidence on candidates of known truth, looked at while records come.

Faults of one model last for several records of an entity, and several assertions flag each of them. How
often they begin differs between entities, for both models alike, and between an entity's hours, for each
model by itself: intra-class correlation of the hours up to 0.5. In a storm every record of an entity is
flagged with one of the two, drawn by lot, for one to six hours.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.dataops.flags.shadow_flags import CommonRecords
from outrider.dataops.improvement.gate import SIGNIFICANCE, judge_shadow
from outrider.dataops.improvement.live_evidence import live_evidence
from outrider.dataops.ledger.flag_marks import JUDGED, LEVEL_BITS

Bools = NDArray[np.bool_]
HISTORIES = 1000
LOOKS = 8
POWER_HISTORIES = 100
POWER_LOOKS = 40
SOME_THOUSANDS = 5000
ASSERTIONS = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic of entities, and the faults of champion and candidate in it."""

    entities: int = 50
    hours: int = 24
    per_hour: float = 4.0
    """Records of an entity, on average."""
    rate: float = 0.05
    """Share of the champion's records that are flagged, storms aside."""
    ratio: float = 1.0
    """The candidate's share by the champion's."""
    correlation: float = 0.0
    """Of the faults of an hour: intra-class, 0 to 0.5."""
    fault_records: int = 1
    """Records in a row that one fault spoils."""
    flags: int = 1
    """Assertions that fire on a spoilt record."""
    storms: float = 0.0
    """Chance that a storm begins, by entity and hour."""
    own: float = 0.7
    """Part of the chance of a fault that is the hour's and the model's own; the rest is the entity's."""
    is_lasting: bool = False
    """That part is the same in all hours of an entity."""


def simulate(traffic: Traffic, seed: int) -> CommonRecords:
    """History of a shadow, in the order of its records."""
    rng, shape = np.random.default_rng(seed), (traffic.entities, traffic.hours)
    n = rng.poisson(traffic.per_hour, shape)
    entity = np.repeat(np.arange(traffic.entities), n.sum(axis=1))
    hour = np.repeat(np.tile(np.arange(traffic.hours), traffic.entities), n.ravel())
    time = hour + rng.random(len(hour))
    order = np.lexsort((time, entity))
    entity, hour, time = entity[order], hour[order], time[order]
    shared = _chances(rng, traffic, (traffic.entities, 1))
    marks = []
    for ratio in (1.0, traffic.ratio):
        own = _chances(rng, traffic, (traffic.entities, 1) if traffic.is_lasting else shape)
        chance = np.broadcast_to((1 - traffic.own) * shared + traffic.own * own, shape)
        begins = rng.random(len(entity)) < np.minimum(ratio * chance[entity, hour] / traffic.fault_records, 1)
        marks.append(_flagged(begins, entity, traffic))
    for at, begin in np.argwhere(rng.random(shape) < traffic.storms):
        is_in = (entity == at) & (hour >= begin) & (hour < begin + rng.integers(1, 7))
        marks[int(rng.integers(2))][is_in] |= LEVEL_BITS["critical"]
    order = np.argsort(time)
    return CommonRecords(entity[order] + 1, hour[order], marks[0][order], marks[1][order])


def _chances(rng: np.random.Generator, traffic: Traffic, shape: tuple[int, int]) -> NDArray[np.float64]:
    if not traffic.correlation:
        return np.full(shape, traffic.rate)
    spread = 1 / traffic.correlation - 1
    return rng.beta(traffic.rate * spread, (1 - traffic.rate) * spread, shape)


def _flagged(begins: Bools, entity: NDArray[np.int64], traffic: Traffic) -> NDArray[np.uint8]:
    """Marks of records, of which faults begin at some: every flag of a record sets a bit."""
    spoilt = begins.copy()
    for later in range(1, traffic.fault_records):
        spoilt[later:] |= begins[:-later] & (entity[later:] == entity[:-later])
    marks = np.full(len(begins), JUDGED, dtype=np.uint8)
    for flag in range(traffic.flags):
        marks[spoilt] |= LEVEL_BITS[ASSERTIONS[flag % len(ASSERTIONS)]]
    return marks


def first_records(common: CommonRecords, records: int) -> CommonRecords:
    """What a look sees when so many records have come."""
    return CommonRecords(
        common.entity[:records], common.hour[:records], common.champion[:records], common.challenger[:records]
    )


def records_until_refused(traffic: Traffic, seed: int, looks: int = LOOKS) -> int | None:
    """Records at the first look that refuses the candidate; None where none does."""
    history = simulate(traffic, seed)
    for look in range(1, looks + 1):
        records = len(history.hour) * look // looks
        if not judge_shadow(live_evidence(first_records(history, records)), 0).passed:
            return records
    return None


def clustered(seed: int, *, flags: int = 1, records: int = 1) -> Traffic:
    """Traffic of an equal candidate: few or many entities, clusters and storms, by the seed."""
    return Traffic(
        entities=(5, 10, 50)[seed % 3],
        hours=(48, 24, 24)[seed % 3],
        correlation=(0.0, 0.2, 0.5)[seed // 3 % 3],
        storms=(0.0, 0.01, 0.05)[seed // 9 % 3],
        flags=flags,
        fault_records=records,
    )


def equal(histories: int = HISTORIES) -> None:
    """Equal candidates that no look refuses."""
    data = (
        f"{LOOKS} looks; 4 records of an entity an hour, 5 / 10 / 50 entities for 48 / 24 / 24 hours, "
        "correlation in hours 0 / 0.2 / 0.5, storms of 1-6 hours in 0 / 1 / 5 % of the entity-hours, seed 0"
    )
    for many in (1, 3, 5, 10):
        for name in ("flags", "records"):
            wrong = sum(
                records_until_refused(clustered(seed, **{name: many}), seed) is not None
                for seed in range(histories)
            )
            Figure.of_share(
                f"improvement.live_evidence.equal.{many}_{name}", histories - wrong, histories,
                f"histories in which an equal candidate is never refused; {many} {name} per fault",
                base=1 - SIGNIFICANCE, target=1.0, data=data,
            ).show()  # fmt: skip


def lasting(histories: int = POWER_HISTORIES) -> None:
    """Equal candidates where every entity has a lasting preference of its own, which the bounds speak of."""
    for entities in (10, 50):
        traffic = Traffic(entities, correlation=0.5, own=1.0, is_lasting=True)
        wrong = sum(records_until_refused(traffic, seed) is not None for seed in range(histories))
        Figure.of_share(
            f"improvement.live_evidence.lasting.{entities}_entities", wrong, histories,
            "share of histories refused",
            data=f"{LOOKS} looks; chances of faults by entity and model, the same in all 24 hours, "
            "intra-class correlation 0.5, from seed 0",
        ).show()  # fmt: skip


POWER = {
    "calm": Traffic(200, 48, 1.0, 0.02, correlation=0.2),
    "usual": Traffic(50, 100, 4.0, 0.02, correlation=0.2),
    "dense": Traffic(10, 200, 40.0, 0.02, correlation=0.2),
    "nameless": Traffic(1, 1000, 100.0, 0.02, correlation=0.01),
}
"""By how many records an entity has in an hour; the last is a stream without entities."""


def power(histories: int = POWER_HISTORIES) -> None:
    """Median records until a worse candidate is refused."""
    for name, traffic in POWER.items():
        for ratio in (2.0, 5.0):
            worse = replace(traffic, ratio=ratio)
            found = [records_until_refused(worse, seed, POWER_LOOKS) for seed in range(histories)]
            needed = float(np.median([np.inf if until is None else until for until in found]))
            is_held = name in ("calm", "usual")
            records = f"{traffic.entities} entities, {traffic.per_hour:g} records of each an hour"
            Figure(
                f"improvement.live_evidence.power.{name}_{ratio:.0f}x", needed, "records, median",
                f"{SOME_THOUSANDS} records", SOME_THOUSANDS / needed, 1.0 if is_held else None,
                sum(until is not None for until in found),
                data=f"n: refused of {histories} histories; {ratio:.0f} times the champion's 2 %, {records}, "
                f"{traffic.hours} hours, correlation in hours {traffic.correlation:g}, {POWER_LOOKS} looks, "
                "from seed 0",
            ).show()  # fmt: skip


if __name__ == "__main__":
    equal()
    lasting()
    power()
