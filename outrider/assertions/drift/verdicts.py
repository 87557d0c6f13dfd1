"""Verdicts on counted columns, with one error for all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from .counting import ColumnCounts
from .direction import percent
from .energy import EnergyDistance
from .evidence import ChangeEvidence, evidence_of, holm, records_needed, smallest_found
from .reading import Kind, Values
from .result import ColumnDrift, Role, Status
from .statistics import statistics_of
from .variation import FEWEST_WINDOWS, Variation

ALPHA = 0.01
LEAST, LEAST_SHARE = 0.05, 0.01
FOUND = 0.2
ROLES: dict[str, Role] = {"outputs": "output", "label": "label", "attrs": "attribute"}


@dataclass(slots=True)
class MeasuredColumn:
    """Evidence on a column before the correction over all columns.

    Attributes
    ----------
    values
        Values of reference and current, if available.
    ignored
        Reason why the column is not compared; empty if it is.
    is_same
        True if both windows hold a single, equal value.
    """

    name: str
    role: Role
    kind: Kind | None = None
    values: tuple[Values, Values] | None = None
    counts: ColumnCounts | None = None
    variation: Variation | None = None
    evidence: list[ChangeEvidence] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ignored: str = ""
    energy: EnergyDistance | None = None
    is_same: bool = False

    def weigh(self, counts: ColumnCounts, least: float, least_share: float) -> bool:
        """Set the evidence from counts; bad input becomes a message.

        True if the reference has values and a change is possible.
        """
        self.problems += _problems(counts)
        self.is_same = np.count_nonzero(counts.reference + counts.current) == 1
        if not counts.reference.any() or (self.is_same and not any(counts.missing)):
            return False
        self.counts, self.variation = counts, Variation.of(counts)
        found = evidence_of(counts, self.variation, least=least, least_share=least_share)
        self.evidence = [each for each in found if each.change == "missing" or not self.is_same]
        return True


Say: TypeAlias = Callable[[MeasuredColumn, Sequence[ChangeEvidence]], str]
"""Function that makes the sentence about a column's drifting changes."""


def check_parameters(**parameters: float) -> None:
    """Raise ValueError if a parameter is outside (0, 1)."""
    for name, value in parameters.items():
        if not 0.0 < value < 1.0:
            raise ValueError(f"{name} must lie between 0 and 1, got {value}")


def decide(
    columns: Sequence[MeasuredColumn], say: Say, *, alpha: float, find: float, more: Sequence[float] = ()
) -> tuple[ColumnDrift, ...]:
    """Verdicts with one error for all columns, worst first.

    Parameters
    ----------
    more
        P-values of further tests under the same error.
    """
    chances_of_all = [each.chance for column in columns for each in column.evidence] + [*more]
    adjusted, tests = iter(holm(chances_of_all).tolist()), len(chances_of_all)
    found = []
    for column in columns:
        chances = tuple(next(adjusted) for _ in column.evidence)
        found.append(_verdict(column, chances, say, alpha, alpha / max(tests, 1), find))
    return tuple(sorted(found, key=_rank))


def _verdict(
    column: MeasuredColumn,
    chances: tuple[float, ...],
    say: Say,
    alpha: float,
    alpha_each: float,
    find: float,
) -> ColumnDrift:
    kind = column.kind or ""
    if column.energy is not None:
        return _vector_verdict(column, column.energy, chances, alpha)
    if column.counts is None or column.variation is None:
        alone: Status = "no drift shown" if column.is_same else "undecided"
        return ColumnDrift(column.name, column.role, kind, alone, "", tuple(column.problems))
    pairs = list(zip(column.evidence, chances, strict=True))
    drifting = [each for each, chance in pairs if chance <= alpha and each.distance >= each.floor]
    status: Status = "drift" if drifting else "no drift shown" if column.is_same else "undecided"
    problems = list(column.problems)
    if not column.counts.current.any():
        return ColumnDrift(
            column.name, column.role, kind, status, say(column, drifting), tuple(problems),
            tuple(column.evidence), chances, tuple(each.change for each in drifting),
        )  # fmt: skip
    smallest = smallest_found(column.counts, column.variation, alpha_each)
    if status == "undecided" and smallest <= find:
        status = "no drift shown"
    if status == "undecided":
        problems.append(_too_small(column, alpha_each, smallest, find))
    return ColumnDrift(
        column.name,
        column.role,
        kind,
        status,
        say(column, drifting),
        tuple(problems),
        tuple(column.evidence),
        chances,
        tuple(each.change for each in drifting),
        statistics_of(column.counts),
        column.variation.shape.dispersion,
        smallest,
        column.counts,
    )


def _vector_verdict(
    column: MeasuredColumn, energy: EnergyDistance, chances: tuple[float, ...], alpha: float
) -> ColumnDrift:
    found = column.evidence[0]
    is_drift = chances[0] <= alpha and found.distance >= found.floor
    return ColumnDrift(
        column.name,
        column.role,
        column.kind or "",
        "drift" if is_drift else "no drift shown",
        f"vectors moved by an energy distance of {energy.distance:.3g}" if is_drift else "",
        tuple(column.problems),
        tuple(column.evidence),
        chances,
        (found.change,) if is_drift else (),
        {"energy_distance": energy.distance, "energy_coefficient": energy.coefficient},
    )


def _too_small(column: MeasuredColumn, alpha: float, smallest: float, find: float) -> str:
    """Reason why a column is undecided, and how many records would decide it."""
    assert column.counts is not None
    assert column.variation is not None
    counts, scatter = column.counts, column.variation.shape
    n, m = float(counts.reference.sum()), float(counts.current.sum())
    if not scatter.shows_windows(n, m):
        return (
            f"reference: about {FEWEST_WINDOWS * m:,.0f} records expected, {FEWEST_WINDOWS} times as many as "
            f"are held against it, found {n:,.0f}, whose blocks differ beyond chance: "
            f"{_differ(column)} always do cannot be told"
        )
    if scatter.is_slow:
        found = f"from {smallest:.2g} on" if smallest < 1.0 else "no distance"
        return (
            f"reference: steady records expected, found blocks that differ {scatter.dispersion:,.0f} times "
            f"as much as those of independent records, and for long: {_differ(column)} do as well cannot be "
            f"told ({found} could be)"
        )
    needed = records_needed(column.variation, alpha, find)
    moves = (
        f"; blocks of the reference differ {scatter.dispersion:,.0f} times as much as independent records do"
    )
    return (
        f"reference and current: about {needed:,} records of each expected to find a distance of {find:g}, "
        f"found {n:,.0f} and {m:,.0f} effective ones, which find {min(smallest, 1.0):.2g}"
        f"{moves if scatter.is_beyond_chance else ''}"
    )


def _differ(column: MeasuredColumn) -> str:
    """Clause about the distance of the shape, and of new values if any."""
    assert column.counts is not None
    shape = next(each for each in column.evidence if each.change == "shape")
    if shape.distance < shape.floor:
        return "whether other windows"
    fresh = column.counts.unseen[1] / column.counts.current.sum()
    new = f" ({percent(fresh)} of its values are new)" if fresh >= LEAST_SHARE else ""
    return f"current is distributed otherwise by {shape.distance:.2g}{new}, whether other windows"


def _problems(counts: ColumnCounts) -> list[str]:
    found = []
    if np.count_nonzero(counts.reference) == 1:
        found.append("reference: values that vary expected, found one alone")
    if not counts.current.any():
        found.append("current: values expected, found null or infinite alone")
    for window, infinite in zip(("reference", "current"), counts.infinite, strict=True):
        if infinite:
            found.append(f"{window}: finite numbers expected, found {infinite:,.0f} infinite, left out")
    return found


def _rank(found: ColumnDrift) -> tuple[int, float]:
    """Sort key: drift first, by the largest distance over its floor; then undecided columns."""
    beyond = max((each.distance / each.floor for each in found.evidence), default=0.0)
    return ("drift", "undecided", "no drift shown").index(found.status), -beyond
