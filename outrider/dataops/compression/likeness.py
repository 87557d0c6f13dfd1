"""How far a variant answers as the champion does, beyond what the champion differs from itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = Mapping[str, NDArray[Any]]
DECISIONS = ("label", "tags", "text")
"""Outputs that are equal or not; where a model has one of them, its numbers do not decide."""
TOLERANCE = 0.01
"""Numbers agree within this share of the standard deviation of the champion's."""
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class Likeness:
    """Agreement of a variant with the champion on the same records.

    Attributes
    ----------
    agreement
        1 less the share of records answered differently beyond ``noise``, at most 1.0.
    low
        Lower end of its 95 % interval (Wilson), the noise taken as it was found.
    same
        Share of records answered alike, nothing subtracted.
    noise
        Share of records that the champion answers differently in batches of another size.
    score_delta
        Mean absolute difference of ``score``; nan without one.
    """

    rows: int
    agreement: float
    low: float
    same: float
    noise: float
    score_delta: float


def likeness(champion: Outputs, again: Outputs, variant: Outputs) -> Likeness:
    """Compare a variant's outputs with the champion's, which were computed twice.

    Parameters
    ----------
    again
        The champion's outputs computed in batches of another size.

    Raises
    ------
    ValueError
        If the variant lacks an output that decides, or it has another shape.
    """
    is_noise = differs(champion, again)
    is_different = differs(champion, variant)
    rows = len(is_different)
    different, noise = float(is_different.mean()), float(is_noise.mean())
    upper = _wilson_upper(different, rows)
    return Likeness(
        rows=rows,
        agreement=1.0 - max(0.0, different - noise),
        low=1.0 - max(0.0, upper - noise),
        same=1.0 - different,
        noise=noise,
        score_delta=_score_delta(champion, variant),
    )


def differs(one: Outputs, other: Outputs) -> NDArray[np.bool_]:
    """Records that are answered differently, shape (rows,).

    By the first of :data:`DECISIONS` that there is; else by any number further off than :data:`TOLERANCE`.
    """
    decisive = next((name for name in DECISIONS if name in one), None)
    names = [decisive] if decisive else [name for name, values in one.items() if values.dtype.kind in "fiu"]
    missing = [name for name in names if name not in other or other[name].shape != one[name].shape]
    if missing or not names:
        what = f"outputs.{missing[0]}" if missing else "a label, a text or a number"
        raise ValueError(f"{what} of the champion's shape expected, there is {', '.join(other) or 'nothing'}")
    if decisive:
        return np.asarray(one[decisive] != other[decisive], dtype=np.bool_)
    found = np.zeros(len(one[names[0]]), dtype=np.bool_)
    for name in names:
        first = one[name].reshape(len(found), -1).astype(np.float64)
        gap = np.abs(first - other[name].reshape(len(found), -1))
        allowed = TOLERANCE * np.nanstd(first)
        found |= ~(gap <= allowed).all(axis=1)
    return found


def _score_delta(one: Outputs, other: Outputs) -> float:
    if "score" not in one or "score" not in other:
        return float("nan")
    return float(np.abs(one["score"].astype(np.float64) - other["score"]).mean())


def _wilson_upper(share: float, n: int) -> float:
    middle = (share + _Z * _Z / (2 * n)) / (1 + _Z * _Z / n)
    half = _Z / (1 + _Z * _Z / n) * float(np.sqrt(share * (1 - share) / n + _Z * _Z / (4 * n * n)))
    return min(1.0, middle + half)
