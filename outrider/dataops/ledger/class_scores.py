"""Scores of every class, as records store them and labels count them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.dataops.state.rows import Row

from .cube import Floats, summed
from .measures import RecordKeys

FEWEST, MOST = 3, 50
"""Classes of a target whose scores are kept; of two the confidence says all."""
BUCKETS = 40
ROUNDING = 1e-6
"""Beyond 0 and 1 that is the last digit of float32."""
REACH = 10.0
"""Log-odds beyond which scores are one: probabilities within 1/20,000 of 0 or 1."""


def score_buckets(scores: Floats) -> NDArray[np.uint8]:
    """Bucket of each probability, by equal steps of its log-odds.

    Examples
    --------
    >>> score_buckets(np.array([0.0, 0.001, 0.1, 0.5, 0.999, 1.0])).tolist()
    [0, 6, 15, 20, 33, 39]
    """
    inside = np.clip(scores, 1e-9, 1.0 - 1e-9)
    place = np.floor((np.log(inside / (1.0 - inside)) + REACH) * (BUCKETS / (2 * REACH)))
    return np.clip(place, 0, BUCKETS - 1).astype(np.uint8)


def stored_scores(probs: Floats) -> list[bytes | None]:
    """Scores as ``record.class_scores``; None for a row beyond [0, 1].

    Of fewer than ``FEWEST`` or more than ``MOST`` classes none is stored.

    Parameters
    ----------
    probs
        Shape (rows, classes).
    """
    if probs.ndim != 2 or not FEWEST <= probs.shape[1] <= MOST:
        return [None] * len(probs)
    known: list[bool] = np.all(np.abs(probs - 0.5) <= 0.5 + ROUNDING, axis=1).tolist()  # False for NaN
    buckets = score_buckets(np.nan_to_num(probs))
    return [row.tobytes() if is_known else None for row, is_known in zip(buckets, known, strict=True)]


def score_rows(
    model: str,
    scores: Sequence[bytes | None],
    labels: Sequence[str],
    keys: RecordKeys,
    sign: Floats,
    classes: Sequence[str],
) -> list[Row]:
    """Rows of ``score_count`` for labelled records, put on or taken off.

    Parameters
    ----------
    labels
        Class of each record by name.
    classes
        Names of the classes in the order of their scores; empty where they are numbered from 0.
    """
    found: list[Row] = []
    parts, place = keys.parts()
    for size in sorted({len(one) for one in scores if one is not None}):
        names = list(classes) if classes else [str(at) for at in range(size)]
        own = [at for at, one in enumerate(scores) if one is not None and len(one) == size]
        own = [at for at in own if labels[at] in names] if len(names) == size else []
        buckets = np.frombuffer(b"".join(scores[at] or b"" for at in own), dtype=np.uint8).astype(np.int64)
        of_class = np.tile(np.arange(size), len(own))
        true = np.repeat([names.index(labels[at]) for at in own], size)
        each, weight = (np.repeat(one[own], size) for one in (sign, keys.weight))
        terms = (each, each * weight, each * weight**2)
        numbers = [np.repeat(place[own], size), of_class, buckets, (true == of_class).astype(np.int64)]
        for (at, number, bucket, is_label), (n, *rest) in summed(numbers, terms):
            found.append((model, *parts[at], names[number], number, bucket, bool(is_label), int(n), *rest))
    return found
