"""Rounds of labelling over traffic of which every answer is known to be right or wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.selection import POLICIES, Policy, SelectionState, select
from outrider.assertions.statistics.estimation import (
    Estimate,
    certain_picks,
    estimate_share,
    selection_weights,
)

Shape = Literal["single", "long-lived", "heavy-tailed", "bursts"]
SHAPES: tuple[Shape, ...] = ("single", "long-lived", "heavy-tailed", "bursts")
FLAGGED: Mapping[str, float] = {"many": 0.4, "few": 0.05, "none": 0.0}
"""Share of the traffic that is flagged: more than all budgets, used up in the first round, nothing."""
ARRIVALS: Mapping[str, tuple[float, ...]] = {"at once": (1.0, 0.0, 0.0), "by and by": (0.5, 0.2, 0.3)}
"""Share of the traffic that came before each round."""
GROUP_S = 600.0
FRAME_S = 6.0
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of traffic under one policy."""

    policy: Policy
    shape: Shape
    flagged: str
    arrivals: str

    def __str__(self) -> str:
        return f"{self.policy}, {self.shape}, {self.flagged} flagged, {self.arrivals}"


CELLS = tuple(
    Cell(policy, shape, flagged, arrivals)
    for policy in POLICIES
    for shape in SHAPES
    for flagged in FLAGGED
    for arrivals in ARRIVALS
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Records in order of their arrival.

    Attributes
    ----------
    wrong
        Whether the model was wrong: more often on some entities, where something fired, and where it was
        unsure; and more often as time goes on.
    """

    wrong: Bools
    severities: Floats
    groups: NDArray[np.object_]
    unsure: Floats
    embeddings: Floats
    arrived: tuple[int, ...]


def traffic(cell: Cell, records: int, seed: int) -> Traffic:
    """Draw traffic."""
    rng = np.random.default_rng([seed, crc32(str(cell).encode())])  # cells are worlds of their own
    entity, ts = _entities(cell.shape, records, rng)
    difficulty = rng.beta(1.0, 4.0, int(entity.max()) + 1)[entity]
    share = FLAGGED[cell.flagged]
    flagged = rng.random(records) < 2.0 * share * (0.5 * (difficulty > np.median(difficulty)) + 0.25)
    unsure = rng.random(records)
    late = np.arange(records) / records
    wrong = rng.random(records) < np.clip(
        0.25 * difficulty + 0.4 * flagged + 0.1 * unsure**2 + 0.06 * late - 0.03, 0.0, 1.0
    )
    fired = np.column_stack([flagged & (rng.random(records) < 0.8), flagged & (rng.random(records) < 0.4)])
    ends = np.cumsum(np.array(ARRIVALS[cell.arrivals]) * records).astype(int)
    return Traffic(
        wrong,
        np.where(fired, 0.1 + rng.random((records, 2)) * (1.0 + wrong[:, None]), 0.0),
        np.array([f"{e} {b}" for e, b in zip(entity, ts // GROUP_S, strict=True)], dtype=object),
        unsure,
        np.column_stack([difficulty, unsure, rng.random(records)]),
        tuple(ends.tolist()),
    )


def _entities(shape: Shape, records: int, rng: np.random.Generator) -> tuple[Rows, Floats]:
    """Entity and event time of every record."""
    ts: Floats = (np.arange(records) * FRAME_S).astype(np.float64)
    if shape == "single":
        return np.arange(records), ts
    if shape == "long-lived":
        return rng.integers(0, 8, records), ts
    if shape == "heavy-tailed":
        return np.minimum(rng.zipf(1.5, records), 10_000).astype(np.intp), ts
    return np.arange(records) // 25, np.repeat(ts[::25], 25)[:records]  # 25 records in one moment


@dataclass(frozen=True, slots=True)
class Result:
    """Estimates after all rounds, each with the truth about the traffic, and how the budget was used."""

    accuracy: Estimate
    truth: float
    precision: Sequence[tuple[Estimate, float]]
    labels: int
    plain: float
    """Accuracy on the labels as they are, without weights."""


def run(cell: Cell, seed: int, *, records: int, budget: int, audit_share: float = 0.1) -> Result:
    """Ask for labels in some rounds, as the label queue does, and estimate from all of them."""
    world = traffic(cell, records, seed)
    state, asked = SelectionState(), np.zeros(records, dtype=np.bool_)
    rows, columns = [np.zeros(0, dtype=np.intp)], []
    for number, end in enumerate(world.arrived):
        left = np.flatnonzero(~asked[:end])
        state = state.observe(world.severities[:end])
        found = select(
            world.severities[left],
            budget=budget,
            policy=cell.policy,
            seed=crc32(f"{cell} {seed}".encode()),
            state=state,
            groups=world.groups[left],
            uncertainty=world.unsure[left],
            embeddings=world.embeddings[left],
            probabilities=np.column_stack([world.unsure, 2.0 - world.unsure])[left] / 2.0,
            audit_share=audit_share,
        )
        picked = left[found.rows]
        asked[picked] = True
        state = state.bought(world.severities[picked], world.wrong[picked])
        rows.append(picked)
        columns.append([found.probability, found.population, found.floor, np.full(len(picked), number)])
    labelled = np.concatenate(rows)
    probability, population, floor, rounds = (np.concatenate(part) for part in zip(*columns, strict=True))
    weights = selection_weights(
        probability,
        population,
        floor=floor,
        rounds=rounds,
        open_to=labelled[:, None] < np.array(world.arrived),
    )
    certain = certain_picks(probability, population)
    wrong = world.wrong[labelled]
    precision = []
    for code in range(world.severities.shape[1]):
        fired = world.severities[:, code] > 0
        if fired.any():
            truth = float(world.wrong[fired].mean())
            precision.append((estimate_share(wrong, weights, within=fired[labelled], certain=certain), truth))
    return Result(
        estimate_share(~wrong, weights, certain=certain),
        float((~world.wrong).mean()),
        precision,
        len(labelled),
        float((~wrong).mean()),
    )
