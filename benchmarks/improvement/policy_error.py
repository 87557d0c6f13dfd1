"""Errors of verdicts by whole policies: named slices, and limits of flags, on candidates of known truth.

A candidate that breaks one check alone, by being just on its border, must seldom pass all of them; an equal
one must seldom be refused, however many slices or limits there are.
"""

from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure
from outrider.assertions.statistics.loss_bounds import Excess, excess
from outrider.dataops.flags.shadow_flags import CommonRecords
from outrider.dataops.improvement.gate import (
    SIGNIFICANCE,
    Evidence,
    NamedSlice,
    PairedEvidence,
    Policy,
    decide,
    error_of,
)
from outrider.dataops.improvement.gate_limits import FlagLimit, FlagShare, LimitEvidence, PolicyLimits
from outrider.dataops.improvement.live_evidence import share_flagged

from .gate_error import errors

HISTORIES = 1000
MARGIN = 0.02
SLICES = 5
LOOKS = 8
RATE = 0.05
"""Share of flagged records."""
Bools = NDArray[np.bool_]


def found(rng: np.random.Generator, lost: float, won: float, icc: float) -> Excess:
    """Excess on a slice of 400 rows of 40 entities; the lower bound is that of one of five slices."""
    old, new, entity = errors(rng, 40, 400, lost, won, icc)
    bounds = excess(old, new, entities=entity, error=error_of(1))
    return replace(bounds, low=excess(old, new, entities=entity, error=error_of(1) / SLICES).low)


def of_slices(parts: list[Excess], margin: float) -> str:
    """Outcome of a policy of named slices alone."""
    named = [
        NamedSlice(str(at), margin, PairedEvidence("held", "loss", 0.0, one)) for at, one in enumerate(parts)
    ]
    return decide(Policy(requires=()), Evidence(named=named)).outcome


def slices(histories: int = HISTORIES) -> None:
    """Five slices: one worse by its margin, and an equal candidate at a margin of 0."""
    worst = {"passed": 0, "failed": 0}
    for icc, (lost, won) in product((0.0, 0.1, 0.5), ((MARGIN, 0.0), (0.06, 0.04))):
        rng = np.random.default_rng(5)
        outcomes: list[str] = []
        for _ in range(histories):
            fine = [found(rng, 0.0, 0.05, icc) for _ in range(SLICES - 1)]
            outcomes.append(of_slices([*fine, found(rng, lost, won, icc)], MARGIN))
        worst["passed"] = max(worst["passed"], outcomes.count("passed"))
        equal = [
            of_slices([found(rng, won + 0.01, won + 0.01, icc) for _ in range(SLICES)], 0.0)
            for _ in range(histories)
        ]
        worst["failed"] = max(worst["failed"], equal.count("failed"))
    data = "worst of intra-class correlations 0 / 0.1 / 0.5 and few or many differences; 5 slices of 400 rows"
    for name, count, what in (
        ("passed_one_bad_slice", worst["passed"], "passed with one slice worse by its margin, four better"),
        ("equal_refused.slices", worst["failed"], "equal candidates refused at a margin of 0"),
    ):
        show(name, count, histories, what, f"{data}, seed 5")


def chances(rng: np.random.Generator, entities: int, hours: int, kind: str) -> NDArray[np.float64]:
    """Chance of a flag by entity and hour, 5 % on average."""
    if kind == "apart":
        return np.full((entities, hours), RATE)
    if kind == "entities":  # each has a lasting chance of its own
        each: NDArray[np.float64] = rng.beta(RATE, 1 - RATE, (entities, 1))
        return np.broadcast_to(each, (entities, hours))
    if kind == "hours":  # a fault flags all of an entity's records in an hour
        return (rng.random((entities, hours)) < RATE).astype(np.float64)
    begins = rng.random((entities, hours + 2)) < 1 - (1 - RATE) ** (1 / 3)  # and in the two that follow
    lasts: Bools = begins[:, 2:] | begins[:, 1:-1] | begins[:, :-2]
    return lasts.astype(np.float64)


def looks(rng: np.random.Generator, kind: str, limits: int, most: float | None) -> list[str]:
    """Outcomes at each look at a growing history; ``most`` None is the share of the entities seen."""
    entities, hours, each = 50, 48, 2
    chance = [chances(rng, entities, hours, kind) for _ in range(limits)]
    entity = np.repeat(np.arange(entities), hours * each)
    hour = np.tile(np.repeat(np.arange(hours), each), entities)
    flagged = [rng.random(len(entity)) < one[entity, hour] for one in chance]
    none = np.zeros(len(entity), dtype=np.uint8)
    outcomes: list[str] = []
    for look in range(1, LOOKS + 1):
        seen = hour < hours * look // LOOKS
        common = CommonRecords(entity[seen] + 1, hour[seen], none[seen], none[seen])
        shares, allowed = [], []
        for at, (of, truth) in enumerate(zip(flagged, chance, strict=True)):
            share = float(truth.mean()) if most is None and kind == "entities" else most or RATE
            value, _, high, count = share_flagged(common, of[seen], error=SIGNIFICANCE)
            _, low, _, _ = share_flagged(common, of[seen], error=SIGNIFICANCE / limits)
            rows = int(seen.sum())
            shares.append(FlagShare(str(at), rows, rows, int(of[seen].sum()), count, value, low, high))
            allowed.append(FlagLimit(str(at), share))
        policy = Policy(requires=(), limits=PolicyLimits(flags=allowed))
        outcomes.append(decide(policy, Evidence(limits=LimitEvidence(flags=shares))).outcome)
    return outcomes


def flags(histories: int = HISTORIES) -> None:
    """PolicyLimits of flags: shares on the border, looked at eight times."""
    data = f"50 entities, 2 records of each an hour for 48 hours, {LOOKS} looks, from seed 0"
    for kind, what in (
        ("apart", "records err apart"),
        ("entities", "each entity has a lasting chance of its own"),
        ("hours", "a fault lasts for an entity's hour"),
        ("three_hours", "a fault lasts for three hours"),
    ):
        passed = sum(
            "passed" in looks(np.random.default_rng(seed), kind, 1, None) for seed in range(histories)
        )
        show(f"passed_at_flag_limit.{kind}", passed, histories, f"passed at the limit; {what}", data)
    refused = sum(
        "failed" in looks(np.random.default_rng(seed), "apart", 5, None) for seed in range(histories)
    )
    show("equal_refused.flags", refused, histories, "refused by any of five limits, at all of them", data)
    passed = sum(
        looks(np.random.default_rng(seed), "hours", 1, 2 * RATE)[-1] == "passed" for seed in range(histories)
    )
    Figure.of_share(
        "improvement.policy_error.passed_at_half_the_limit", passed, histories,
        "candidates passed at half of the limit", base=0.9, target=1.0,
        data="last look; a fault lasts for an entity's hour",
    ).show()  # fmt: skip


def show(name: str, count: int, histories: int, what: str, data: str) -> None:
    """Share that may be one in twenty; none seen counts as one."""
    share = count / histories
    Figure(
        f"improvement.policy_error.{name}", share, f"share of histories: {what}", "0.05",
        0.05 / max(share, 1.0 / histories), 1.0, n=histories, data=data,
    ).show()  # fmt: skip


if __name__ == "__main__":
    slices()
    flags()
