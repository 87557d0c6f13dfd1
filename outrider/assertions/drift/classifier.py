"""Domain classifier: separates records of two windows by all columns together."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .reading import Values

Floats = NDArray[np.float64]
MOST = 10_000
"""Maximum number of records used per window, evenly spaced."""
PARTS = 20
"""Number of stretches of a window for cross-fitting: fitted on every other one, evaluated on the rest."""
FEWEST = 400
_PAIRS = 12
"""Maximum number of numeric columns whose pairwise products become features."""
_LEVELS = 10
_NAMED = 3


@dataclass(frozen=True, slots=True)
class DomainClassifier:
    """Cross-fitted classification of records as reference or current.

    Attributes
    ----------
    auroc
        Probability that a current record scores above a reference record, in [0, 1]; 0.5 for equal windows.
    low, high
        95 % interval of it.
    chance
        Probability of such an AUROC without drift (p-value), in [0, 1].
    columns
        Columns whose removal lowers the AUROC most, largest first.
    """

    auroc: float
    low: float
    high: float
    chance: float
    columns: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        return {
            "auroc": self.auroc,
            "low": self.low,
            "high": self.high,
            "p_value": self.chance,
            "columns": list(self.columns),
        }


def domain_classifier(columns: Mapping[str, tuple[Values, Values]]) -> DomainClassifier | None:
    """Classify records as reference or current, cross-fitted.

    Features are ranks of numbers, their squares and products, missing values, and frequent categories; the
    classifier is linear. It is fitted on every other stretch of both windows and evaluated on the rest, then
    the other way round. The variance is that between stretches, so that runs of similar records prove
    nothing.

    Parameters
    ----------
    columns
        Values of reference and current, by column: numbers, texts and categories.

    Returns
    -------
    DomainClassifier or None
        None where there are fewer than two columns, or 400 records of a window.

    References
    ----------
    Lopez-Paz and Oquab, "Revisiting classifier two-sample tests", ICLR 2017. We test the AUROC, with the
    variance between stretches.
    """
    columns = {name: both for name, both in columns.items() if both[0].kind != "vector"}
    sizes = [min((both[side].rows for both in columns.values()), default=0) for side in (0, 1)]
    if len(columns) < 2 or min(sizes) < FEWEST:
        return None
    rows = [np.linspace(0, size - 1, min(size, MOST)).astype(np.int64) for size in sizes]
    features, owners = _features(columns, rows)
    parts = [np.arange(len(each)) * PARTS // len(each) for each in rows]
    folds = [_fold(features, owners, [part % 2 == side for part in parts], parts) for side in (0, 1)]
    auroc = float(np.mean([fold[0] for fold in folds]))
    reach = float(np.mean([fold[1] for fold in folds]))
    drops = {name: float(np.mean([fold[3][name] for fold in folds])) for name in columns}
    named = sorted((name for name in drops if drops[name] > 0), key=lambda name: -drops[name])[:_NAMED]
    chance = min(1.0, 2 * min(fold[2] for fold in folds))
    return DomainClassifier(auroc, max(0.0, auroc - reach), min(1.0, auroc + reach), chance, tuple(named))


def _features(
    columns: Mapping[str, tuple[Values, Values]], rows: list[NDArray[np.int64]]
) -> tuple[list[Floats], list[tuple[str, ...]]]:
    """Features of both windows, shapes (rows, features), and the columns that each feature uses."""
    made: list[tuple[Floats, Floats]] = []
    owners: list[tuple[str, ...]] = []
    ranks: dict[str, tuple[Floats, Floats]] = {}
    for name, both in columns.items():
        if both[0].kind == "category":
            found = _levels(both, rows)
        else:
            values = [each.numbers[row].astype(np.float64) for each, row in zip(both, rows, strict=True)]
            known = np.sort(values[0][np.isfinite(values[0])])
            one, two = (_ranks(each, known) for each in values)
            ranks[name] = one, two
            found = [(one, two), (one**2, two**2)]
            found.append((np.isnan(values[0]).astype(np.float64), np.isnan(values[1]).astype(np.float64)))
        made += found
        owners += [(name,)] * len(found)
    for first, second in combinations(list(ranks)[:_PAIRS], 2):
        made.append((ranks[first][0] * ranks[second][0], ranks[first][1] * ranks[second][1]))
        owners.append((first, second))
    return [np.column_stack([each[side] for each in made]) for side in (0, 1)], owners


def _ranks(values: Floats, known: Floats) -> Floats:
    """Rank among the reference's values, scaled to [-1, 1]; 0 for missing ones."""
    place = known.searchsorted(values, "left") + known.searchsorted(values, "right")
    return np.where(np.isnan(values), 0.0, place / max(len(known), 1) - 1.0)


def _levels(both: tuple[Values, Values], rows: list[NDArray[np.int64]]) -> list[tuple[Floats, Floats]]:
    """Indicator features for the most frequent categories of the reference, and for missing values."""
    counts = np.bincount(both[0].codes, minlength=len(both[0].categories) + 1)[:-1]
    names = [each.categories.to_pylist() for each in both]
    found = []
    for level in np.argsort(-counts, kind="stable")[:_LEVELS]:
        other = names[1].index(names[0][level]) if names[0][level] in names[1] else -1
        one, two = both[0].codes[rows[0]] == level, both[1].codes[rows[1]] == other
        found.append((one * 1.0, two * 1.0))
    ends = [each.codes[row] == len(each.categories) for each, row in zip(both, rows, strict=True)]
    return [*found, (ends[0] * 1.0, ends[1] * 1.0)]


def _fold(
    features: list[Floats],
    owners: list[tuple[str, ...]],
    is_held_out: list[NDArray[np.bool_]],
    parts: list[NDArray[np.int64]],
) -> tuple[float, float, float, dict[str, float]]:
    """Held-out AUROC, half-width of its interval, p-value, and loss of AUROC without each column."""
    from scipy.special import stdtr, stdtrit

    weights = _fitted(*(each[~held] for each, held in zip(features, is_held_out, strict=True)))
    asked = [each[held] for each, held in zip(features, is_held_out, strict=True)]
    stretch = [part[held] for part, held in zip(parts, is_held_out, strict=True)]
    above, below = _placements(asked[0] @ weights, asked[1] @ weights)
    means = [_means(below, stretch[0]), _means(above, stretch[1])]
    auroc = float(above.mean())
    error = float(np.sqrt(sum(each.var(ddof=1) / len(each) for each in means)))
    freedom = PARTS // 2 - 1
    chance = float(stdtr(freedom, (0.5 - auroc) / error)) if error else float(auroc <= 0.5)
    drops = {}
    for name in {name for owner in owners for name in owner}:
        kept = np.where([name in owner for owner in owners], 0.0, weights)
        drops[name] = auroc - float(_placements(asked[0] @ kept, asked[1] @ kept)[0].mean())
    return auroc, float(stdtrit(freedom, 0.975)) * error, chance, drops


def _fitted(reference: Floats, current: Floats) -> Floats:
    """Weights of a ridge regression on the window label; both windows have equal weight."""
    centre = (reference.mean(axis=0) + current.mean(axis=0)) / 2
    apart = [each - centre for each in (reference, current)]
    spread = apart[0].T @ apart[0] / len(apart[0]) + apart[1].T @ apart[1] / len(apart[1])
    ridge = 1e-3 * np.eye(len(centre)) * max(float(np.trace(spread)) / len(centre), 1e-12)
    found: Floats = np.linalg.solve(spread + ridge, current.mean(axis=0) - reference.mean(axis=0))
    return found


def _placements(reference: Floats, current: Floats) -> tuple[Floats, Floats]:
    """Share of reference scores below each current one, and of current scores above each reference one."""
    ordered = [np.sort(each) for each in (reference, current)]
    above = ordered[0].searchsorted(current, "left") + ordered[0].searchsorted(current, "right")
    below = ordered[1].searchsorted(reference, "left") + ordered[1].searchsorted(reference, "right")
    return above / (2 * len(reference)), 1.0 - below / (2 * len(current))


def _means(values: Floats, parts: NDArray[np.int64]) -> Floats:
    """Mean of each stretch."""
    rows = np.bincount(parts)
    there = rows > 0
    found: Floats = np.bincount(parts, values)[there] / rows[there]
    return found
